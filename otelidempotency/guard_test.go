package otelidempotency_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
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

// Runs in flight are told by their route, and the age is that of the oldest.
func TestGaugesOfRunsByRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, idempotency.NewMemoryStore())
		b.watch(t)
		leave := make(chan struct{})
		for _, route := range []string{"POST /charges", "PUT /charges", "/payouts"} {
			h := b.guard.With(idempotency.WithRoute(route)).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
			for _, key := range []string{"a", "b"} {
				go b.serve(t, h, strings.ReplaceAll(route, " ", ":")+key, "")
				time.Sleep(6 * time.Second)
			}
		}
		age, active := b.values(t, "idempotency.run.age"), b.values(t, "idempotency.runs.active")
		close(leave)
		synctest.Wait()
		require.Equal(t, map[string]int64{"http.route=/charges": 36, "http.route=/payouts": 12}, age)
		require.Equal(t, map[string]int64{"": 0, "http.route=/charges": 4, "http.route=/payouts": 2}, active)
		require.NotContains(t, b.metrics(t), "idempotency.run.age")
	})
}

// Calls of the store are measured by operation, and the timeout is the least that holds.
func TestStoreCallsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, slow{idempotency.NewMemoryStore()})
		b.watch(t)
		b.serve(t, b.guard.Handler(answering(http.StatusOK, "")), "k", "")
		m := b.metrics(t)["idempotency.store.call.duration"]
		require.Equal(t, map[string]int64{"idempotency.operation=claim": 1, "idempotency.operation=complete": 1}, valuesOf(t, m))
		require.InDelta(t, 0.7, sumOf(t, m), 0.001)
		require.EqualValues(t, 2, b.values(t, "idempotency.store.timeout")[""])
	})
	b := newBench(t, idempotency.NewMemoryStore())
	b.watch(t)
	b.serve(t, b.guard.Handler(answering(http.StatusOK, "")), "k", "")
	require.NotContains(t, b.metrics(t), "idempotency.store.call.duration")
	require.NotContains(t, b.metrics(t), "idempotency.store.timeout", "calls of a memory store take no time")
}

// A slow store needs 700 ms for a claim.
type slow struct{ *idempotency.MemoryStore }

func (s slow) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	time.Sleep(700 * time.Millisecond) // of the bubble
	return s.MemoryStore.Claim(ctx, key, c)
}

// claimless is a store that answers no claim.
type claimless struct{ idempotency.Store }

func (claimless) Claim(context.Context, string, store.Claim) (store.Record, error) {
	return store.Record{}, errors.New("connection lost")
}

func TestGaugeOfClaimsWithoutAReply(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		b := newBench(t, st)
		b.watch(t, otelidempotency.WithStore(st))
		require.Equal(t, map[string]int64{"idempotency.state=held": 0}, b.values(t, "idempotency.records"), "it begins at zero")
		require.NotContains(t, b.metrics(t), "idempotency.held.expires_in")
		require.NotContains(t, b.metrics(t), "idempotency.held.age")

		dies := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		for key, end := range map[string]time.Duration{"a": 0, "b": 3 * time.Hour, "c": 2 * time.Hour} {
			h := b.guard.With(idempotency.WithRecovery(idempotency.Hold), idempotency.WithRetention(end)).Handler(dies)
			require.Panics(t, func() { b.serve(t, h, key, "") })
		}
		b.serve(t, b.guard.Handler(answering(http.StatusOK, "")), "d", "")
		require.EqualValues(t, 0, b.values(t, "idempotency.records")["idempotency.state=held"], "it is not counted for each scrape")
		time.Sleep(time.Minute)
		require.Equal(t, map[string]int64{"idempotency.state=held": 3}, b.values(t, "idempotency.records"))
		require.EqualValues(t, 119*60, b.values(t, "idempotency.held.expires_in")[""])
		require.EqualValues(t, 60, b.values(t, "idempotency.held.age")[""])
		time.Sleep(30 * time.Second)
		require.EqualValues(t, 119*60-30, b.values(t, "idempotency.held.expires_in")[""])
		require.EqualValues(t, 90, b.values(t, "idempotency.held.age")[""])
	})
}

// listing is a store whose lists take their time, and fail or never end when they ask for everything.
type listing struct {
	*idempotency.MemoryStore
	held, all func() (store.Page, error) // nil: as the store answers
}

func (l listing) List(ctx context.Context, q store.Query) (store.Page, error) {
	time.Sleep(time.Millisecond) // of the bubble
	switch {
	case q.Holding && l.held != nil:
		return l.held()
	case !q.Holding && l.all != nil:
		return l.all()
	}
	return l.MemoryStore.List(ctx, q)
}

func endless() (store.Page, error) {
	return store.Page{Entries: make([]store.Entry, 1), Next: "1"}, nil
}

// A count that is not complete would say that nothing is held.
func TestStoreThatCannotBeCountedHasNoGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := listing{MemoryStore: idempotency.NewMemoryStore(), held: endless}
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

func TestCensus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var grown atomic.Bool // to more records than can be visited in a minute, the shortest period
		st := listing{MemoryStore: idempotency.NewMemoryStore()}
		st.all = func() (store.Page, error) {
			if grown.Load() {
				return endless()
			}
			return st.MemoryStore.List(context.Background(), store.Query{})
		}
		b := newBench(t, &st)
		b.serve(t, b.guard.Handler(answering(http.StatusOK, "")), "done", "")
		for _, name := range []string{"dies", ".is the library's own"} {
			_, err := st.Claim(t.Context(), name, store.Claim{Owner: store.Owner{1}, Lease: time.Second, Retention: time.Hour})
			require.NoError(t, err)
		}
		time.Sleep(time.Second)
		t.Cleanup(func() { time.Sleep(time.Second) }) // until the census has seen that nobody wants it any more
		b.watch(t, otelidempotency.WithStore(&st), otelidempotency.WithCensus(time.Nanosecond))
		require.NotContains(t, b.metrics(t), "idempotency.census.age", "it has begun")

		time.Sleep(time.Second)
		require.Equal(t, map[string]int64{
			"idempotency.state=held": 0, "idempotency.state=claimed": 0, "idempotency.state=lapsed": 1,
			"idempotency.state=completed": 1, "idempotency.state=released": 0,
		}, b.values(t, "idempotency.records"))
		require.EqualValues(t, 0, b.values(t, "idempotency.census.failed")[""])

		grown.Store(true)
		time.Sleep(2 * time.Minute)
		require.EqualValues(t, 1, b.values(t, "idempotency.census.failed")[""])
		require.InDelta(t, 120, b.values(t, "idempotency.census.age")[""], 2)
		records := b.values(t, "idempotency.records")
		require.EqualValues(t, 1, records["idempotency.state=completed"], "the last complete one stands")
		require.Contains(t, records, "idempotency.state=held", "what is held is counted in any event")
	})
}

func TestGaugesOfRoutes(t *testing.T) {
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
	_, err := otelidempotency.ObserveGuard(nil)
	require.Error(t, err)
	b := newBench(t, idempotency.NewMemoryStore())
	_, err = otelidempotency.ObserveGuard(b.guard, otelidempotency.WithStore(deaf{idempotency.NewMemoryStore()}))
	require.ErrorIs(t, err, idempotency.ErrNoLister)
}
