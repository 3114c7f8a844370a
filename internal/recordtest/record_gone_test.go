package recordtest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// A store forgets what it had acknowledged, because it was emptied or evicts, or because a copy that is behind
// has taken its place.
func TestStoreThatHasForgottenIsToldOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(t *testing.T, d *desk, st *listed, all []store.Entry)
		want    string // what the event says
	}{
		"nothing":    {func(*testing.T, *desk, *listed, []store.Entry) {}, ""},
		"all expire": {func(*testing.T, *desk, *listed, []store.Entry) { ticks(24 * 60) }, ""},
		"emptied": {func(t *testing.T, _ *desk, st *listed, all []store.Entry) {
			forget(t, st, all...)
		}, "has lost 4 of the last 4 records"},
		"one was evicted": {func(t *testing.T, _ *desk, st *listed, all []store.Entry) {
			forget(t, st, all[0])
		}, "has lost 1 of the last 4 records"},
		"another process runs again what was lost": {func(t *testing.T, _ *desk, st *listed, all []store.Entry) {
			forget(t, st, all[0])
			_, err := st.inspected.Claim(t.Context(), all[0].Key, store.Claim{Owner: store.Owner{1}, Lease: time.Hour, Retention: time.Hour})
			require.NoError(t, err)
		}, "has lost 1 of the last 4 records"},
		"another has run again what was lost, and has recorded it": {func(t *testing.T, _ *desk, st *listed, all []store.Entry) {
			forget(t, st, all[0])
			owner := store.Owner{1}
			_, err := st.inspected.Claim(t.Context(), all[0].Key, store.Claim{Owner: owner, Lease: time.Hour, Retention: time.Hour})
			require.NoError(t, err)
			require.NoError(t, st.inspected.Complete(t.Context(), all[0].Key, owner, store.Completion{TTL: time.Hour}))
		}, "has lost 1 of the last 4 records"},
		"somebody has told this process to forget it": {func(t *testing.T, d *desk, _ *listed, all []store.Entry) {
			for _, e := range all {
				require.NoError(t, d.Forget(t.Context(), idempotency.Key{Record: e.Key}, e.Record.Seen(), idempotency.Decision{}))
			}
		}, ""},
		"it cannot be read": {func(_ *testing.T, _ *desk, st *listed, _ []store.Entry) {
			st.On("get", guardtest.Always(guardtest.Refuse))
		}, ""},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			st := newListed()
			d := newDesk(t, st, idempotency.WithKeptKeys(false))
			d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusCreated) }
			for i := range 4 {
				require.Equal(t, http.StatusCreated, d.route.Do(t, guardtest.Call{Key: fmt.Sprint("order-", i)}).Status)
			}
			d.reconcile(t)
			page, err := st.inspected.List(t.Context(), store.Query{})
			require.NoError(t, err)
			require.Len(t, page.Entries, 4)
			c.happens(t, d, st, page.Entries)
			ticks(3)
			gone := d.only(event.RecordGone)
			if c.want == "" {
				require.Empty(t, gone)
				return
			}
			require.Len(t, gone, 1, "told once")
			require.ErrorContains(t, gone[0].Err, c.want)
			require.Equal(t, payouts, gone[0].Route)
			require.NotEmpty(t, gone[0].Record)
		})
	}
}

// forget takes records out of the store, past every guard.
func forget(t *testing.T, st *listed, gone ...store.Entry) {
	t.Helper()
	for _, e := range gone {
		require.NoError(t, st.inspected.Forget(t.Context(), e.Key, e.Record.Seen()))
	}
}
