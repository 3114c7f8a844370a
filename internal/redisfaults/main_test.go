package redisfaults

import (
	"flag"
	"os"
	"testing"

	"example.com/idempotency/internal/guardtest"
)

// TestMain lets eight tests run at the same time unless -parallel says otherwise, however few
// processors there are: the tests wait for servers and leases most of the time. The slow ones have
// servers under load, and run with three others only.
func TestMain(m *testing.M) {
	parallel := "8"
	if exhaustive {
		parallel = "4"
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		panic(err)
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
