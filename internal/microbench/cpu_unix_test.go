//go:build unix

package microbench

import (
	"syscall"
	"testing"
	"time"
)

// reportCPU returns a function that reports the processor time of each operation since
// then, including that of the garbage collector. On a busy machine it says more than the
// time on the clock.
func reportCPU(b *testing.B) func() {
	b.Helper()
	before := cpuTime(b)
	return func() {
		b.Helper()
		b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
