package guardtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// RequireTombstone lets somebody forget the record of a key, twice. What is left tells it, and changes nothing for the
// requests with the key.
func RequireTombstone(t testing.TB, st idempotency.Store) {
	t.Helper()
	g := NewGuard(t, st, idempotency.WithRoute("POST /charges"))
	var attempts []int
	s := ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		attempts = append(attempts, op.Attempt())
		w.WriteHeader(http.StatusCreated)
	})))
	key := idempotency.Key{Scope: "acme", Value: "k"}
	for n := 1; n <= 2; n++ {
		require.False(t, s.Do(t, Call{Key: "k"}).Replayed())
		require.True(t, s.Do(t, Call{Key: "k"}).Replayed())
		info, err := g.Lookup(t.Context(), key)
		require.NoError(t, err)
		require.Nil(t, info.Forgotten)
		require.NoError(t, g.Forget(t.Context(), key, info.Seen(), idempotency.Decision{Actor: "ada", Reason: "a test"}))

		gone, err := g.Lookup(t.Context(), idempotency.Key{Record: info.Record})
		require.ErrorIs(t, err, idempotency.ErrNotFound)
		was := gone.Forgotten
		require.NotNil(t, was)
		require.Equal(t, []any{store.Completed, 1, "POST /charges", info.Record}, []any{was.State, was.Attempt, was.Route, was.Record})
		require.Len(t, was.Decisions, n)
		last := was.Decisions[n-1]
		require.Equal(t, event.DecisionInfo{ID: last.ID, Made: last.Made, From: "completed", Attempt: 1, Actor: "ada", Reason: "a test"}, last)
		require.InDelta(t, 30*24*time.Hour, was.TTL, float64(time.Hour))
		page := store.Page{Entries: List(t, st.(store.Lister), store.Query{})}
		require.Len(t, page.Entries, 1)
		require.Empty(t, page.OfKeys().Entries)
	}
	require.Equal(t, []int{1, 1}, attempts, "as of a key that was never used")
}
