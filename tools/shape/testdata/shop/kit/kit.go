// Package kit is for tests. It may import what it likes.
package kit

import "example.org/shop/engine"

// Try tries.
func Try() string { return engine.Run() }
