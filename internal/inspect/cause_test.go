package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// Each cause has words of its own. That a process has died is said only where the record says so, or tells nothing.
func TestEachCauseIsToldInWords(t *testing.T) {
	told := map[string]event.Cause{}
	for _, cause := range append(event.Causes(), "", "of a later version") {
		if cause == event.CauseFound {
			continue // which no record tells
		}
		says := happened(idempotency.RecordInfo{State: store.Held, Attempt: 2, Cause: cause, TTL: store.Forever})
		require.Equal(t, cause == "" || cause == event.CauseLapsed, strings.Contains(says, "its process died, hung or lost the store"), cause)
		if cause != "of a later version" {
			require.Empty(t, told[says], "%s", cause)
			told[says] = cause
		}
		answered := happened(idempotency.RecordInfo{State: store.Held, Attempt: 2, Cause: cause, Answered: 502, TTL: store.Forever})
		require.Equal(t, strings.Replace(says, ". Retries", " (status 502). Retries", 1), answered)
	}
}

// A listing has one word. A step in doubt decides what can be said of the key, so it comes first.
func TestTheCauseOfARecordIsOneWord(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for want, i := range map[string]idempotency.RecordInfo{
		"panic":           {State: store.Held, Cause: event.CausePanic, Held: at},
		"lapsed":          {State: store.Held, Cause: event.CauseLapsed},
		"step-in-doubt":   {State: store.Held, Cause: event.CausePanic, InDoubt: []string{"charge"}},
		"outcome-unknown": {State: store.Held},
		"":                {State: store.Completed},
	} {
		r := RecordOf(i)
		require.Equal(t, want, r.Cause)
		require.Equal(t, map[bool]string{true: "2023-11-14T22:13:20Z"}[want == "panic"], r.Held)
	}
	require.Equal(t, "outcome unknown (502)", Why("outcome-unknown", 502))
}

// The story has each hold behind its run, and before the decision about it.
func TestTheStoryHasHoldsInTheirPlace(t *testing.T) {
	story := Story{
		Runs:   []Attempt{{Attempt: 1, Cause: "lapsed"}, {Attempt: 2, Held: "a"}, {Attempt: 3}},
		Record: Record{Decided: []Made{{Attempt: 1}, {Attempt: 2}}},
	}
	var order []string
	for _, e := range story.Events() {
		order = append(order, map[bool]string{true: "run"}[e.Run != nil]+map[bool]string{true: "hold"}[e.Hold != nil]+map[bool]string{true: "decision"}[e.Decided != nil])
	}
	require.Equal(t, []string{"run", "hold", "decision", "run", "hold", "decision", "run"}, order)
}

// Who forgets a record hears what the next request makes again, and which of it may have happened.
func TestForgettingTellsWhatIsMadeAgain(t *testing.T) {
	says := Forgets(idempotency.RecordInfo{State: store.Held, Steps: []string{"reserve"}, InDoubt: []string{"charge"}})
	require.Contains(t, says, `and makes "reserve", "charge" again, although "charge" may have happened. Right only if`)
	require.NotContains(t, Forgets(idempotency.RecordInfo{State: store.Held, Steps: []string{"reserve"}}), "although")
}
