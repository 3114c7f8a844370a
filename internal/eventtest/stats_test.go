package eventtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

func TestStatsOfRunsAndWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(20*time.Second, "done"), idempotency.WithWait(time.Minute))
		owner := p.Start(t, guardtest.Call{Key: "k"})
		other := p.Start(t, guardtest.Call{Key: "other"})
		waiters := p.Waiters(t, 3, guardtest.Call{Key: "k"})
		require.Equal(t, idempotency.Stats{Running: 2, Waiting: 3}, p.Guard.Stats())
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
	t.Parallel()
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

func TestStatsAfterAPanic(t *testing.T) {
	t.Parallel()
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	require.Panics(t, func() {
		_, _, _ = idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: "k"},
			func(context.Context) (int, error) { panic("bug") })
	})
	require.Zero(t, g.Stats())
}
