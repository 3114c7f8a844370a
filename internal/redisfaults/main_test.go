package redisfaults

import (
	"flag"
	"os"
	"testing"

	"example.com/idempotency/internal/guardtest"
)

// TestMain lets four tests run at the same time unless -parallel says otherwise, however
// few processors there are: the tests wait for servers and leases most of the time.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	os.Exit(guardtest.Main(m))
}
