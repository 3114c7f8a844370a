package eventtest

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
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

func TestStatsOfRunsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(20*time.Second, "done"), idempotency.WithWait(time.Minute))
		owner := p.Start(t, guardtest.Call{Key: "k"})
		other := p.Start(t, guardtest.Call{Key: "other"})
		waiters := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		got := p.Guard.Stats()
		got.Oldest = nil
		require.Equal(t, idempotency.Stats{Running: 2, ByRoute: map[string]int{"": 2}, Waiting: 3}, got)
		require.Equal(t, p.Guard.Stats(), p.Guard.With().Stats(), "they are those of all guards of the family")
		<-owner
		<-other
		for range 3 {
			<-waiters
		}
		synctest.Wait()
		require.Zero(t, p.Guard.Stats())
	})
}

func TestStatsOfWhatWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = "an answer of some length"
		hearing := make(chan struct{})
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, body))
		p.Store.On("complete", guardtest.Always(guardtest.Deaf(hearing)))
		require.Equal(t, body, p.Do(t, guardtest.Call{Key: "k"}).Body)
		got := p.Guard.Stats()
		require.Equal(t, 1, got.Pending)
		require.Greater(t, got.PendingBytes, int64(len(body)))
		require.Positive(t, got.Abandoned, "the store has not returned")
		require.Zero(t, got.Running, "the client has its answer")

		p.Store.Heal()
		close(hearing)
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		synctest.Wait()
		require.Zero(t, p.Guard.Stats())
	})
}

// A run that hangs is known by its route until it ends, however it ends and how many of another route hang, too.
func TestStatsOfLongRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		stop := sync.OnceFunc(func() { close(leave) })
		defer stop()
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-leave
			if r.Header.Get("Idempotency-Key") == "fails" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithLease(30*time.Second), idempotency.WithRoute("POST /charges"))
		payouts := guardtest.ServeRecorder(t, p.Guard.With(idempotency.WithRoute("POST /payouts")).Handler(h))
		start := time.Now()
		var ended []<-chan guardtest.Reply
		for n := range 20 {
			ended = append(ended, p.Start(t, guardtest.Call{Key: fmt.Sprint(n)}))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second / 2)
		require.Len(t, p.Guard.Stats().Long, 11, "those that are older than a third of the lease")
		time.Sleep(time.Minute)
		long := p.Guard.Stats().Long
		require.Len(t, long, 16)
		for n, run := range long {
			require.Equal(t, "POST /charges", run.Route)
			require.Equal(t, store.Claimed, run.State)
			require.Equal(t, 1, run.Attempt)
			require.NotEmpty(t, run.Record)
			require.True(t, run.Started.Equal(start.Add(time.Duration(n)*time.Second)), run.Started)
		}
		last := payouts.Start(t, guardtest.Call{Key: "fails"})
		synctest.Wait()
		stats := p.Guard.Stats()
		require.Equal(t, map[string]int{"POST /charges": 20, "POST /payouts": 1}, stats.ByRoute)
		require.Equal(t, long[0], stats.Oldest[0])
		require.Equal(t, "POST /payouts", stats.Oldest[1].Route)
		require.True(t, stats.Oldest[1].Started.Equal(time.Now()))
		time.Sleep(time.Minute)
		stop()
		for _, e := range append(ended, last) {
			<-e
		}
		require.Zero(t, p.Guard.Stats())
	})
}

func TestStatsAfterAPanic(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	require.Panics(t, func() {
		_, _, _ = idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: "k"},
			func(context.Context) (int, error) { panic("bug") })
	})
	require.Zero(t, g.Stats())
}
