package txtest

import (
	"os"
	"testing"

	"example.com/idempotency/internal/guardtest"
)

func TestMain(m *testing.M) { os.Exit(guardtest.Main(m)) }
