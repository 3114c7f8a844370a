//go:build race

// Package race tells tests whether the race detector is on. With it a sync.Pool drops items at
// random, so counts of allocations mean nothing.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
