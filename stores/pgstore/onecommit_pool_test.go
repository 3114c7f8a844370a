package pgstore_test

import (
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
