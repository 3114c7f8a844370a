// Package engine runs.
package engine

import "example.org/shop/clock"

// Run runs.
func Run() string { return clock.Now() }
