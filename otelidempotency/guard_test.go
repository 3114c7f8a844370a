package otelidempotency_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/otelidempotency"
	"example.com/idempotency/store"
)

func (b *bench) watch(t testing.TB, opts ...otelidempotency.Option) {
	t.Helper()
	reg, err := otelidempotency.ObserveGuard(b.guard, append(opts, otelidempotency.WithMeterProvider(b.meters))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reg.Unregister()) })
}

func TestGaugesOfAGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, deaf{idempotency.NewMemoryStore()})
		b.watch(t)
		h := b.guard.With(idempotency.WithWait(time.Minute)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		for range 3 {
			go b.serve(t, h, "k", "")
		}
		synctest.Wait()
		require.EqualValues(t, 1, b.values(t, "idempotency.runs.active")[""])
		require.EqualValues(t, 2, b.values(t, "idempotency.requests.waiting")[""])
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 0, b.values(t, "idempotency.runs.active")[""])
		require.EqualValues(t, 1, b.values(t, "idempotency.pending.recordings")[""])
		require.EqualValues(t, 0, b.values(t, "idempotency.store.abandoned")[""])
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Error(t, b.guard.Shutdown(soon))
		time.Sleep(time.Minute)
		require.EqualValues(t, 0, b.values(t, "idempotency.pending.recordings")[""])
	})
}

// claimless is a store that answers no claim.
type claimless struct{ idempotency.Store }

func (claimless) Claim(context.Context, string, store.Claim) (store.Record, error) {
	return store.Record{}, errors.New("connection lost")
}

func TestGaugeOfClaimsWithoutAReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, claimless{idempotency.NewMemoryStore()})
		b.watch(t)
		require.EqualValues(t, 0, b.values(t, "idempotency.claims.giving_back")[""])
		b.serve(t, b.guard.Handler(http.NotFoundHandler()), "k", "")
		require.EqualValues(t, 1, b.values(t, "idempotency.claims.giving_back")[""])
		require.NoError(t, b.guard.Shutdown(t.Context()))
		require.EqualValues(t, 0, b.values(t, "idempotency.claims.giving_back")[""])
	})
}

func TestGaugesOfAStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		b := newBench(t, st)
		b.watch(t, otelidempotency.WithStore(st))
		require.EqualValues(t, 0, b.values(t, "idempotency.records")["idempotency.state=held"], "it begins at zero")
		require.NotContains(t, b.metrics(t), "idempotency.held.expires_in")

		dies := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		for key, end := range map[string]time.Duration{"a": 0, "b": 3 * time.Hour, "c": 2 * time.Hour} {
			h := b.guard.With(idempotency.WithRecovery(idempotency.Hold), idempotency.WithRetention(end)).Handler(dies)
			require.Panics(t, func() { b.serve(t, h, key, "") })
		}
		b.serve(t, b.guard.Handler(answering(http.StatusOK, "")), "d", "")
		require.EqualValues(t, 0, b.values(t, "idempotency.records")["idempotency.state=held"], "it is not counted for each scrape")
		time.Sleep(time.Minute)
		records := b.values(t, "idempotency.records")
		require.EqualValues(t, 3, records["idempotency.state=held"])
		require.EqualValues(t, 1, records["idempotency.state=completed"])
		require.EqualValues(t, 119*60, b.values(t, "idempotency.held.expires_in")[""])
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 119*60-30, b.values(t, "idempotency.held.expires_in")[""])
	})
}

// endless is a store with more records than can be visited.
type endless struct{ *idempotency.MemoryStore }

func (endless) List(context.Context, store.Query) (store.Page, error) {
	time.Sleep(time.Millisecond)
	return store.Page{Entries: make([]store.Entry, 1), Next: "1"}, nil
}

// A count that is not complete would say that nothing is held.
func TestStoreThatCannotBeCountedHasNoGauge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := endless{idempotency.NewMemoryStore()}
		b := newBench(t, st)
		b.watch(t, otelidempotency.WithStore(st))
		start := time.Now()
		all, err := tryCollect(t, b.reader)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.LessOrEqual(t, time.Since(start), 6*time.Second)
		require.NotContains(t, all, "idempotency.records")
		require.Contains(t, all, "idempotency.runs.active", "the other gauges are there")
	})
}

func TestGaugesOfRoutes(t *testing.T) {
	t.Parallel()
	b := newBench(t, idempotency.NewMemoryStore())
	b.watch(t)
	require.Equal(t, map[string]int64{"": 24 * 3600}, b.values(t, "idempotency.policy.ttl"))

	b = newBench(t, idempotency.NewMemoryStore())
	charge := b.guard.With(idempotency.WithRoute("POST /charges"), idempotency.WithTTL(time.Hour))
	payout := b.guard.With(idempotency.WithRoute("payout"), idempotency.WithTTL(72*time.Hour))
	b.watch(t, otelidempotency.WithRoutes(charge, nil, payout))
	require.Equal(t, map[string]int64{"http.route=/charges": 3600, "http.route=payout": 72 * 3600}, b.values(t, "idempotency.policy.ttl"))
}

func TestObserveGuardSaysWhatItCannot(t *testing.T) {
	t.Parallel()
	_, err := otelidempotency.ObserveGuard(nil)
	require.Error(t, err)
	b := newBench(t, idempotency.NewMemoryStore())
	_, err = otelidempotency.ObserveGuard(b.guard, otelidempotency.WithStore(deaf{idempotency.NewMemoryStore()}))
	require.ErrorIs(t, err, idempotency.ErrNoLister)
}
