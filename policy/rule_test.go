package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/policy"
)

// text returns a rule of a policy.
func text(t *testing.T, p policy.Policy, id string) string {
	t.Helper()
	for _, r := range p.Rules() {
		if r.ID == id {
			return r.Text
		}
	}
	require.Fail(t, "no rule "+id)
	return ""
}

// A time is in the unit that people would choose, and is never longer than it is.
func TestPeriods(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{
		"24 hours": 24 * time.Hour, "7 days": 7 * 24 * time.Hour, "36 hours": 36 * time.Hour, "1 hour": time.Hour,
		"90 minutes": 90 * time.Minute, "1 minute": time.Minute, "61 seconds": 61 * time.Second, "1 second": time.Second,
		"2 seconds": 2999 * time.Millisecond, "20 milliseconds": 20 * time.Millisecond,
	} {
		p := charges
		p.TTL = d
		require.Contains(t, text(t, p, "replay"), " for "+want+".")
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for want, n := range map[string]int64{
		"1 MiB": 1 << 20, "1 GiB": 1 << 30, "64 KiB": 64 << 10, "1000 bytes": 1000, "1 byte": 1, "1025 bytes": 1025,
	} {
		p := charges
		p.MaxRequestBody = n
		require.Contains(t, text(t, p, "max-request"), " of more than "+want+" ")
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	for want, methods := range map[string]string{"POST": "POST", "POST or PATCH": "POST PATCH", "A, B or C": "A B C"} {
		p := charges
		p.Methods = strings.Fields(methods)
		require.Contains(t, text(t, p, "methods"), " the method "+want+" can ")
	}
}
