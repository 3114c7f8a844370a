package pgfaults

import (
	"os"
	"testing"

	"example.com/idempotency/pgstore/internal/pgtest"
)

// TestMain runs the tests, or an API process that a test has started.
func TestMain(m *testing.M) {
	if dsn := os.Getenv(processDSN); dsn != "" {
		serveProcess(dsn, os.Getenv(processKind) == kindJoined)
		return
	}
	os.Exit(pgtest.Main(m))
}
