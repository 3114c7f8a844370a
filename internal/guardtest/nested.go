package guardtest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
)

// RequireNested fails the test unless a guard on inner, inside one on outer, leaves the keys to that one and says so:
// the two are values of one store.
func RequireNested(t *testing.T, outer, inner idempotency.Store, opts ...idempotency.Option) {
	t.Helper()
	h, seen := &Counter{}, &Events{}
	inside := NewGuard(t, inner, append(opts, idempotency.WithObserver(seen.Observe))...)
	s := ServeRecorder(t, NewGuard(t, outer, opts...).Handler(inside.Handler(h)))
	require.Equal(t, http.StatusCreated, s.Do(t, Call{Key: "nested"}).Status)
	require.True(t, s.Do(t, Call{Key: "nested"}).Replayed())
	require.EqualValues(t, 1, h.Runs.Load())
	require.Equal(t, []event.Kind{event.Nested}, seen.Kinds())
}
