package idempotency_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestMain fails the package if a test leaves a goroutine of the library behind: nothing
// may outlive Shutdown and Close.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // tests that stop servers make it talk
	code := m.Run()
	if left := leftGoroutines(5 * time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// leftGoroutines returns the stacks of goroutines that run the library's code, if they
// are still there after a while.
func leftGoroutines(patience time.Duration) string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var left []string
		stacks := make([]byte, 8<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "example.com/idempotency.") && !strings.Contains(stack, "TestMain") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
