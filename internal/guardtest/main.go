package guardtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"example.com/idempotency/internal/leaktest"
)

// Main runs the tests of a package and returns the exit code. It fails the package if a
// test leaves a goroutine of the library behind: none may outlive Shutdown and Close. Only
// the root package and the subscriptions of package watch start any.
func Main(m *testing.M) int {
	logging.Disable() // the client logs every failed connection, and tests break many
	code := m.Run()
	for _, pkg := range []string{"example.com/idempotency.", "example.com/idempotency/internal/watch."} {
		if left := leaktest.Left(pkg, 5*time.Second); code == 0 && left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	return code
}
