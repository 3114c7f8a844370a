// Package clock tells the time.
package clock

import "time"

// Now is the time.
func Now() string { return time.Now().String() }
