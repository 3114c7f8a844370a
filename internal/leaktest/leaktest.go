// Package leaktest finds goroutines that tests leave behind.
package leaktest

import (
	"runtime"
	"strings"
	"time"
)

// Left returns the stacks of goroutines that run code of a package, such as
// "example.com/idempotency.", if they are still there after a while. The one that runs
// TestMain does not count.
func Left(pkg string, patience time.Duration) string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		stacks := make([]byte, 8<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, pkg) && !strings.Contains(stack, "TestMain") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
