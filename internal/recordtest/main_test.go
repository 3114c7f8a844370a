package recordtest

import (
	"os"
	"testing"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

func TestMain(m *testing.M) {
	redistest.AtOnce(4)
	os.Exit(guardtest.Main(m))
}
