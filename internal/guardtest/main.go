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
// test leaves a goroutine of the library behind: none may outlive Shutdown and Close.
func Main(m *testing.M) int {
	logging.Disable() // the client logs every failed connection, and tests break many
	code := m.Run()
	if left := leaktest.Left("example.com/idempotency.", 5*time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		return 1
	}
	return code
}
