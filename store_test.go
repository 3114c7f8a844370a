package idempotency_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// What was seen goes through a listing, a ticket and a command, and is the same at the end.
func TestSeenAsText(t *testing.T) {
	for state := range store.Corrupt + 1 {
		want := store.Seen{Owner: store.Owner{1, 0xab, 15: 0xff}, Attempt: 12, State: state}
		text, err := json.Marshal(map[string]store.Seen{"seen": want})
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"seen": "%s/12/01ab00000000000000000000000000ff"}`, state), string(text))
		var got map[string]store.Seen
		require.NoError(t, json.Unmarshal(text, &got))
		require.Equal(t, want, got["seen"])
	}
	unread := store.Seen{State: store.Corrupt}
	var got store.Seen
	require.NoError(t, got.UnmarshalText([]byte(unread.String())))
	require.Equal(t, unread, got)
	for _, text := range []string{
		"held/0/01ab00000000000000000000000000ff", "held/-1/01ab00000000000000000000000000ff", "released/0/00000000000000000000000000000000",
		"none/0/00000000000000000000000000000000", "corrupt/-1/00000000000000000000000000000000", "corrupt/0/01ab00000000000000000000000000ff",
		"", "held", "held/1", "held/1/", "held/1/01ab", "held/1/01ab00000000000000000000000000ff00", "held/1/01AB00000000000000000000000000FF",
		"Held/1/01ab00000000000000000000000000ff", "held/+1/01ab00000000000000000000000000ff", "held//01ab00000000000000000000000000ff",
		"held/1/01ab00000000000000000000000000ff/", " held/1/01ab00000000000000000000000000ff", "unknown(9)/1/01ab00000000000000000000000000ff",
	} {
		seen := store.Seen{Attempt: 7}
		require.Error(t, seen.UnmarshalText([]byte(text)), text)
		require.Equal(t, store.Seen{Attempt: 7}, seen)
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
	for _, promises := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := promisingStore{guardtest.NewStepFaultStore().FaultStore, promises}
			st.On("claim", guardtest.First(1, guardtest.Late(time.Hour)))
			guard := guardtest.NewGuard(t, st)
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
