package simulation

import (
	"os"
	"testing"

	"example.com/idempotency/internal/guardtest"
)

func TestMain(m *testing.M) {
	// The traceback of a world that panics in a goroutine of its own tells its seed.
	if err := os.Setenv("GODEBUG", os.Getenv("GODEBUG")+",tracebacklabels=1"); err != nil {
		panic(err)
	}
	os.Exit(guardtest.Main(m))
}
