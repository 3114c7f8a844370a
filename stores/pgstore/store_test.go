package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

var tables atomic.Int64

// newStore returns a store with an empty table of its own, and the name of the table.
func newStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) (*pgstore.Store, string) {
	t.Helper()
	table := fmt.Sprintf("records_%d", tables.Add(1))
	opts = append([]pgstore.Option{pgstore.WithTable(table)}, opts...)
	require.NoError(t, pgstore.Migrate(t.Context(), pool, opts...))
	s, err := pgstore.New(t.Context(), pool, opts...)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, table
}

// clock returns a function that lets time pass for all records of a table: it moves them into
// the past.
func clock(t testing.TB, pool *pgxpool.Pool, table string) func(time.Duration) {
	sql := fmt.Sprintf(`UPDATE %s SET version = version + 1, since = since - $1, touched = touched - $1,
		expires = CASE WHEN expires = 9223372036854775807 THEN expires ELSE expires - $1 END`, table)
	return func(d time.Duration) {
		_, err := pool.Exec(context.Background(), sql, d.Microseconds())
		require.NoError(t, err)
	}
}

// The contract, in each mode in which the driver can send a statement, and with each way to begin a
// transaction.
func TestStoreKeepsTheContract(t *testing.T) {
	for mode, begun := range map[pgx.QueryExecMode]txMode{
		pgx.QueryExecModeCacheStatement: {iso: pgx.ReadCommitted},
		pgx.QueryExecModeCacheDescribe:  {iso: pgx.ReadCommitted, sql: true},
		pgx.QueryExecModeExec:           {iso: pgx.Serializable},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(pgtest.Shared(t).DSN)
			require.NoError(t, err)
			cfg.ConnConfig.DefaultQueryExecMode, cfg.MaxConns = mode, 4
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) (store.Store, func(time.Duration)) {
					s, table := newStore(t, pool, pgstore.WithConns(3))
					return s, clock(t, pool, table)
				},
				Transactions: begun.transactions(pool),
			})
		})
	}
}
