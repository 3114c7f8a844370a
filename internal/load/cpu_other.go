//go:build !unix

package load

import "time"

var begin = time.Now()

// CPUTime is the time on the clock, where the system does not tell how long processors have worked.
func CPUTime() time.Duration { return time.Since(begin) }
