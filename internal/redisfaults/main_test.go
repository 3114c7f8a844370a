package redisfaults

import (
	"flag"
	"os"
	"testing"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// TestMain lets the slow tests run four at a time, and not only two if there are two processors: they
// wait, too.
func TestMain(m *testing.M) {
	redistest.AtOnce(8)
	if exhaustive {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(guardtest.Main(m))
}

var exhaustive = os.Getenv("REDIS_EXHAUSTIVE") != ""

// slow skips a test that waits for leases and servers so long that only CI and the mutants run it.
func slow(t *testing.T) {
	t.Helper()
	if !exhaustive {
		t.Skip("REDIS_EXHAUSTIVE=1 runs it")
	}
}
