package idempotency_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

// The tests of this file let an observer get in the way: by a panic, or by runtime.Goexit,
// which nobody can recover. What the goroutine of the guard held must not stay behind.

// disturb sets an observer that calls f when it is first told that a store call of that
// kind has failed.
func disturb(op string, f func()) idempotency.Option {
	var told atomic.Bool
	return idempotency.WithObserver(func(_ context.Context, e event.Event) {
		if e.Op == op && told.CompareAndSwap(false, true) {
			f()
		}
	})
}

// unwound runs f in a goroutine of its own, and returns when that has ended or is waiting.
// In a bubble.
func unwound(f func()) {
	go f()
	synctest.Wait()
}

// What an observer does to itself does not concern the request: the answer of a run is
// recorded although the observer panics when it is told that recording has failed once.
func TestPanicOfTheObserverIsContained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := guardtest.Answering(0, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, disturb("complete", func() { panic("expected by the test") }),
			idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		p.Store.On("complete", guardtest.First(1, guardtest.Refuse))
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
		time.Sleep(guardtest.LeaseTime)
		require.Equal(t, "true", p.Do(t, guardtest.Call{Key: "k"}).Header.Get("Idempotent-Replayed"))
		require.Contains(t, log.String(), "observer panicked")
		require.Contains(t, log.String(), "expected by the test")
		require.Contains(t, log.String(), "disturb", "the stack")
	})
}

// The one who leads a wait is lost: another of those who wait leads on, and its place in
// the room is given back.
func TestLeaderThatIsLostIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(20*time.Second, "done")
		p, store := guardtest.NewWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute),
			disturb("watch", runtime.Goexit))
		err := error(guardtest.ErrDown)
		store.WatchFault.Store(&err)
		allThere := make(chan struct{})
		store.BeforeWatch = func() { <-allThere }

		owner := p.Start(t, guardtest.Call{Key: "k"})
		unwound(func() { _, _ = p.Try(t.Context(), guardtest.Call{Key: "k"}) })
		replies := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		close(allThere)
		start := time.Now()
		require.Equal(t, "done", (<-owner).Body)
		for range 3 {
			require.Equal(t, "done", (<-replies).Body)
		}
		require.LessOrEqual(t, time.Since(start), 21*time.Second)
		synctest.Wait()
		require.Zero(t, p.Guard.Waiting())
	})
}

// A claim whose reply never came is given back also if the request that made it is lost.
func TestClaimOfALostRequestIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(0, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, disturb("claim", runtime.Goexit))
		p.Store.On("claim", guardtest.First(1, guardtest.LoseReply))
		unwound(func() { _, _ = p.Try(t.Context(), guardtest.Call{Key: "k"}) })
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
	})
}

// So is a claim that has taken the key over, if the request is lost when that is reported.
func TestTakeoverOfALostRequestIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost atomic.Int32
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"),
			idempotency.WithObserver(func(_ context.Context, e event.Event) {
				if (e.Op == "complete" || e.Kind == event.Takeover) && lost.Add(1) <= 2 {
					runtime.Goexit()
				}
			}))
		p.Store.On("complete", guardtest.First(1, guardtest.Refuse))
		unwound(func() { _, _ = p.Try(t.Context(), guardtest.Call{Key: "k"}) })
		time.Sleep(guardtest.LeaseTime)
		unwound(func() { _, _ = p.Try(t.Context(), guardtest.Call{Key: "k"}) })
		require.EqualValues(t, 2, lost.Load())
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
	})
}

// A run that is lost while it is being settled blocks its key for no longer than a lease.
func TestKeyOfALostRunLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(0, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, disturb("complete", runtime.Goexit))
		p.Store.On("complete", guardtest.First(1, guardtest.Refuse))
		unwound(func() { _, _ = p.Try(t.Context(), guardtest.Call{Key: "k"}) })
		time.Sleep(guardtest.LeaseTime)
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
		p.RequireQuiet(t)
	})
}

// An observer may keep the context of an event for longer than the request takes. What serves one
// request serves others later, and the context must not become theirs.
func TestContextOfAnEventIsThatOfItsRequest(t *testing.T) {
	type name struct{}
	var kept []context.Context
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		idempotency.WithObserver(func(ctx context.Context, _ event.Event) { kept = append(kept, ctx) }))
	require.NoError(t, err)
	h := g.Handler(guardtest.Answering(0, "done"))
	for i := range 100 {
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), name{}, i), http.MethodPost, "/", http.NoBody)
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	require.Len(t, kept, 100)
	for i, ctx := range kept {
		require.Equal(t, i, ctx.Value(name{}))
	}
}
