package report

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
)

// The line of each kind has all that the event says of a key, and of the scope only a digest.
func TestLineOfEachKindSaysWhatTheEventSays(t *testing.T) {
	for kind := range lines {
		var out strings.Builder
		r := Reporter{Logger: slog.New(slog.NewJSONHandler(&out, nil)), Flood: new(Flood)}
		r.Observe(t.Context(), event.Event{
			Kind: kind, Would: event.Replay, Record: "record", Scope: "alice", OperationID: "operation", Method: "POST", Route: "POST /payouts",
			Attempt: 2, Trace: event.TraceContext{TraceID: [16]byte{0xab}, SpanID: [8]byte{0xcd}}, Outcome: event.Unknown, Status: 502,
			Cause: event.CausePanic, Age: 90 * time.Second, Steps: []string{"book"}, InDoubt: []string{"wire"},
			Decision: "decision", Actor: "ada", Reason: "the bank has nothing", Err: errors.New("away"),
		})
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(out.String()), &got), "%s: %q", kind, out.String())
		for name, want := range map[string]any{
			"record": "record", "scope": intent.ScopeID("alice"), "operation": "operation", "method": "POST", "route": "POST /payouts", "attempt": 2.0,
			"trace_id": "ab" + strings.Repeat("00", 15), "span_id": "cd" + strings.Repeat("00", 7), "outcome": "unknown", "status": 502.0,
			"cause": string(event.CausePanic), "age_seconds": 90.0, "steps": "book", "in_doubt": "wire",
			"decision": "decision", "actor": "ada", "reason": "the bank has nothing", "error": "away",
		} {
			require.Equal(t, want, got[name], "%s: %s", kind, name)
		}
		require.NotContains(t, out.String(), "alice")
		require.NotEmpty(t, got["msg"])
	}
}
