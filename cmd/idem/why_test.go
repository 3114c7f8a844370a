package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/inspect"
)

// A run that has not said why it has left its key held has not said when, either.
func TestWhyTellsEachHoldBehindItsRun(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out, now: func() time.Time { return time.Date(2026, 11, 27, 3, 12, 9, 0, time.UTC) }}
	a.tell(inspect.Story{Runs: []inspect.Attempt{
		{Attempt: 1, Started: "2026-11-27T03:02:09Z", Cause: "lapsed"},
		{Attempt: 2, Started: "2026-11-27T03:08:09Z", Cause: "outcome-unknown", Held: "2026-11-27T03:09:09Z", Answered: 502},
	}})
	require.Contains(t, out.String(), `attempt 1  began 10m ago (2026-11-27T03:02:09Z)
held 1     when its lease had ended: lapsed
attempt 2  began 4m ago (2026-11-27T03:08:09Z)
held 2     3m ago (2026-11-27T03:09:09Z): outcome-unknown 502
`)
}
