package redistest

import (
	"flag"
	"os"
	"strconv"
)

// AtOnce lets n tests of a package run at the same time unless -parallel says otherwise, however few
// processors there are. It is for a TestMain of tests that wait for servers and leases most of the time: those that
// compute would only be in each other's way. With REDIS_EXHAUSTIVE there are also tests with servers
// under load, and it does nothing.
func AtOnce(n int) {
	if os.Getenv("REDIS_EXHAUSTIVE") != "" {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
