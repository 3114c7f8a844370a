package idempotency_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// The name of a state becomes the label of a metric and a word in a log, also where there
// is no record.
func TestStateString(t *testing.T) {
	t.Parallel()
	for state, want := range map[idempotency.State]string{
		0:                          "none",
		idempotency.StateClaimed:   "claimed",
		idempotency.StateReleased:  "released",
		idempotency.StateCompleted: "completed",
		idempotency.StateHeld:      "held",
		9:                          "unknown(9)",
	} {
		require.Equal(t, want, state.String())
	}
}

// What was seen goes through a listing, a ticket and a command, and is the same at the end.
func TestSeenAsText(t *testing.T) {
	t.Parallel()
	for state := range idempotency.StateCorrupt + 1 {
		want := idempotency.Seen{Owner: idempotency.Owner{1, 0xab, 15: 0xff}, Attempt: 12, State: state}
		text, err := json.Marshal(map[string]idempotency.Seen{"seen": want})
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"seen": "%s/12/01ab00000000000000000000000000ff"}`, state), string(text))
		var got map[string]idempotency.Seen
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, want, got["seen"])
	}
	for _, text := range []string{
		"", "held", "held/1", "held/1/", "held/1/01ab", "held/1/01ab00000000000000000000000000ff00", "held/1/01AB00000000000000000000000000FF",
		"Held/1/01ab00000000000000000000000000ff", "held/+1/01ab00000000000000000000000000ff", "held//01ab00000000000000000000000000ff",
		"held/1/01ab00000000000000000000000000ff/", " held/1/01ab00000000000000000000000000ff", "unknown(9)/1/01ab00000000000000000000000000ff",
	} {
		seen := idempotency.Seen{Attempt: 7}
		require.Error(t, seen.UnmarshalText([]byte(text)), text)
		require.Equal(t, idempotency.Seen{Attempt: 7}, seen)
	}
}

// A promisingStore says that it obeys contexts, or that it does not. It does not.
type promisingStore struct {
	*guardtest.FaultStore
	promises bool
}

func (s promisingStore) ObeysContext() bool { return s.promises }

// A guard takes a store at its word: it waits for the calls of one that promises to obey
// contexts, and watches the clock for one that does not.
func TestContextStoreIsTakenAtItsWord(t *testing.T) {
	t.Parallel()
	for _, promises := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := promisingStore{guardtest.NewStepFaultStore().FaultStore, promises}
			store.On("claim", guardtest.First(1, guardtest.Late(time.Hour)))
			guard := guardtest.NewGuard(t, store)
			r := httptest.NewRequest("POST", "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			start := time.Now()
			guard.Handler(guardtest.Answering(0, "done")).ServeHTTP(httptest.NewRecorder(), r)
			waited := time.Since(start) >= time.Hour
			time.Sleep(time.Hour) // The call that was left behind comes back.
			require.Equal(t, promises, waited)
		})
	}
}
