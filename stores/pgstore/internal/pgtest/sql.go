package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Exec executes statements on a pool, a connection or a transaction.
func Exec(t testing.TB, on interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	t.Helper()
	_, err := on.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// PoolOf returns a pool of the configuration, which is closed with the test.
func PoolOf(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}
