package pgfaults

import (
	"flag"
	"os"
	"testing"

	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// TestMain runs the tests, or an API process that a test has started. All tests may run at the same
// time, however few processors there are: they wait for servers and leases most of the time.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(processDSN); dsn != "" {
		serveProcess(dsn, kind(os.Getenv(processKind)), os.Getenv(processLease))
		return
	}
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(pgtest.Main(m))
}
