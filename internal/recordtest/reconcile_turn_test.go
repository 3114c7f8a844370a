package recordtest

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// How long a resolver has its turn, and what Reconcile tells of a store that forgets.

// A resolver waits for its context, as one does whose provider is silent. The other keys have their turn, what is
// held meanwhile is found, and a shutdown does not wait.
func TestReconcileEndsTheTurnOfAResolver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		d := newDesk(t, idempotency.NewMemoryStore(), idempotency.WithResolver(
			func(ctx context.Context, rec idempotency.RecordInfo) (idempotency.Resolution, error) {
				asked = append(asked, rec.Key.Value)
				if rec.Key.Value == "key-0" {
					<-ctx.Done()
					return idempotency.Resolution{}, ctx.Err()
				}
				return idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil
			}))
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }
		for n := range 3 {
			d.route.Do(t, guardtest.Call{Key: fmt.Sprint("key-", n)})
			time.Sleep(time.Second)
		}
		d.reconcile(t)
		ticks(2)
		require.Equal(t, []string{"key-0", "key-1", "key-2"}, asked[:3])
		over := d.only(event.Unresolved)[0]
		require.ErrorContains(t, over.Err, "other keys wait")

		begun := time.Now()
		require.NoError(t, d.Shutdown(t.Context()))
		require.NoError(t, <-d.done)
		require.Equal(t, begun, time.Now(), "key-0 is asked again, and a shutdown ends that")
	})
}

// What a resolver has said in time is settled, although its turn has ended, or a shutdown has begun.
func TestReconcileSettlesWhatWasSaidInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		d := newDesk(t, st, idempotency.WithResolver(func(ctx context.Context, _ idempotency.RecordInfo) (idempotency.Resolution, error) {
			<-ctx.Done()
			return idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil
		}))
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }
		d.route.Do(t, guardtest.Call{Key: "k"})
		d.reconcile(t)
		ticks(1)
		require.Len(t, d.only(event.Resolved), 1)
		require.Empty(t, d.only(event.StoreError))
	})
}

// A store forgets what it had acknowledged, because it was emptied or evicts, or because a copy that is behind
// has taken its place.
func TestStoreThatHasForgottenIsToldOf(t *testing.T) {
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
			guardtest.Claim(t, st.inspected, all[0].Key, store.Claim{Owner: store.Owner{1}, Lease: time.Hour, Retention: time.Hour})
		}, "has lost 1 of the last 4 records"},
		"another has run again what was lost, and has recorded it": {func(t *testing.T, _ *desk, st *listed, all []store.Entry) {
			forget(t, st, all[0])
			owner := store.Owner{1}
			guardtest.Claim(t, st.inspected, all[0].Key, store.Claim{Owner: owner, Lease: time.Hour, Retention: time.Hour})
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
			page = page.OfKeys()
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

// A run that was overtaken, and records its answer all the same, as another owner, has a record that is not lost.
func TestLateAnswerIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		d := newDesk(t, st, idempotency.WithLease(time.Minute), idempotency.WithRecovery(idempotency.Rerun))
		entered, answer := make(chan struct{}), make(chan struct{})
		goOn := sync.OnceFunc(func() { close(answer) })
		defer goOn()
		d.runs.Handler = func(w http.ResponseWriter, _ *http.Request, _ int64) {
			close(entered)
			<-answer
			w.WriteHeader(http.StatusCreated)
		}
		d.reconcile(t)
		go d.route.Do(t, guardtest.Call{Key: "k"})
		<-entered
		st.On("renew", guardtest.Always(guardtest.Refuse))
		ticks(2)
		other := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st.inspected).Handler(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })))
		require.Equal(t, http.StatusTooManyRequests, other.Do(t, guardtest.Call{Key: "k"}).Status)
		st.On("renew", nil)
		goOn()
		ticks(3)
		require.True(t, d.route.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Empty(t, d.only(event.RecordGone))
	})
}
