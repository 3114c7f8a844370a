package client_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"example.com/idempotency/internal/leaktest"
	"example.com/idempotency/internal/redistest"
)

// TestMain fails the package if a test leaves a goroutine behind that runs code of the
// library, or waits for an answer.
func TestMain(m *testing.M) {
	redistest.AtOnce(8)
	code := m.Run()
	for _, pkg := range []string{"example.com/idempotency", "net/http.(*persistConn)"} {
		if left := leaktest.Left(pkg, 5*time.Second); code == 0 && left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}
