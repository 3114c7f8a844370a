//go:build unix

package load

import (
	"syscall"
	"time"
)

// CPUTime is how long processors have worked for this process, with the garbage collector's part.
// On a busy machine it says more than the time on the clock.
func CPUTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
