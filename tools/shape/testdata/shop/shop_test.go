package shop

import "testing"

// TestNothing names [Nobody]: tests are free.
func TestNothing(t *testing.T) {
}
