//go:build !race

// Package race tells tests whether the race detector is on: with it a sync.Pool drops
// items at random, and counts of allocations mean nothing.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
