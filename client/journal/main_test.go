//go:build unix || windows

package journal_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"example.com/idempotency/internal/leaktest"
)

// TestMain fails the package if a test leaves a goroutine behind. In a child process it is
// the program that the tests kill.
func TestMain(m *testing.M) {
	if url := os.Getenv(payingClient); url != "" {
		pay(url)
		return
	}
	code := m.Run()
	if left := leaktest.Left("example.com/idempotency", 5*time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}
