package idempotency_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/leaktest"
)

// TestMain fails the package if a test leaves a goroutine of the library behind: nothing
// may outlive Shutdown and Close.
func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // tests that stop servers make it talk
	code := m.Run()
	if left := leaktest.Left("example.com/idempotency.", 5*time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
