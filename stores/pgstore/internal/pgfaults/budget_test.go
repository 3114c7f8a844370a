package pgfaults

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This file is about how long a run of all worlds takes. On most machines a connection takes the server a
// millisecond or two, and on some, where page faults are slow, twenty. All worlds are 3,100, with about ten
// connections each.

// began is when the budget of this program did.
var began = time.Now()

// A deadline is when no further world begins; the zero deadline is never.
type deadline struct{ time.Time }

func (d deadline) over() bool { return !d.IsZero() && time.Now().After(d.Time) }

// within returns when that part of PG_BUDGET ends that begins now, given the whole and what is left of it.
func within(t *testing.T, part func(whole, left time.Duration) time.Duration) (d deadline) {
	t.Helper()
	if set := os.Getenv("PG_BUDGET"); set != "" {
		whole, err := time.ParseDuration(set)
		require.NoError(t, err)
		d.Time = time.Now().Add(part(whole, whole-time.Since(began)))
	}
	return d
}
