package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// poolOf returns a pool of that many connections.
func poolOf(t *testing.T, conns string) *pgxpool.Pool {
	server := *pgtest.Shared(t).Server
	server.DSN += "&pool_max_conns=" + conns
	return (&pgtest.Server{Server: &server}).Pool(t)
}

// A claim does not wait for a connection of a pool that others have taken.
func TestOneCommitOnAPoolThatIsTaken(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "2")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	for range 2 {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
	}
	claim := mayBeLost()
	r, err := s.Claim(t.Context(), "k", claim)
	require.NoError(t, err)
	require.True(t, r.Mine && !r.MayBeLost)
	require.NoError(t, s.Complete(t.Context(), "k", claim.Owner, store.Completion{TTL: time.Hour}))
}

// Who closes the store and the pool does not wait for leases.
func TestOneCommitEndsWithItsStore(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, "4")
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""))
	_, err := s.Claim(t.Context(), "k", mayBeLost())
	require.NoError(t, err)
	require.EqualValues(t, 1, pool.Stat().AcquiredConns())
	s.Close()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, guardtest.Patience, time.Millisecond)
}

// A claim of the usual kind, by a run that needs a record or finds no connection, is not granted beside a
// transaction that is one.
func TestOneCommitKeepsOthersAway(t *testing.T) {
	t.Parallel()
	for _, async := range []bool{false, true} {
		opts := []pgstore.Option{pgstore.WithOneCommit("")}
		other := newClaim()
		if async {
			opts = append(opts, pgstore.WithAsyncClaims())
		}
		pool := pgtest.Shared(t).Pool(t)
		s, _ := newStore(t, pool, opts...)
		claim := mayBeLost()
		r, err := s.Claim(t.Context(), "k", claim)
		require.NoError(t, err)
		require.True(t, r.Mine)
		t.Cleanup(func() { _ = s.Release(context.Background(), "k", claim.Owner, store.Release{Undone: true}) }) // if the test fails
		if async {
			other = mayBeLost()
			for range pool.Config().MaxConns - 1 {
				conn, err := pool.Acquire(t.Context())
				require.NoError(t, err)
				t.Cleanup(conn.Release)
			}
		}
		r, err = s.Claim(t.Context(), "k", other)
		require.NoError(t, err)
		require.False(t, r.Mine)
		require.Equal(t, store.Claimed, r.State)
		require.NoError(t, s.Release(t.Context(), "k", claim.Owner, store.Release{Undone: true}))
		r, err = s.Claim(t.Context(), "k", other)
		require.NoError(t, err)
		require.True(t, r.Mine)
		require.Equal(t, 1, r.Attempt)
		require.NoError(t, s.Release(t.Context(), "k", other.Owner, store.Release{Undone: true}))
	}
}

// Who waits for the lock of a key does not take the last turn from the run that is to free it.
func TestOneCommitIsReleasedBesideWaiters(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, _ := newStore(t, pool, pgstore.WithOneCommit(""), pgstore.WithConns(3)) // one turn
	claim := mayBeLost()
	r, err := s.Claim(t.Context(), "k", claim)
	require.NoError(t, err)
	require.True(t, r.Mine && r.MayBeLost)
	waits := mayBeLost()
	waits.Watch = true
	_, err = s.Claim(t.Context(), "k", waits)
	require.NoError(t, err)
	if s.Awaits("k") {
		require.Eventually(t, func() (waits bool) {
			err := pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&waits)
			return err == nil && waits
		}, guardtest.Patience, time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, s.Release(ctx, "k", claim.Owner, store.Release{}))
}
