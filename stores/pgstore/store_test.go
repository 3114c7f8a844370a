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

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
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
		pgx.QueryExecModeExec:           {iso: pgx.ReadCommitted, whole: true},
		pgx.QueryExecModeSimpleProtocol: {iso: pgx.Serializable},
	} {
		if race.Enabled && mode == pgx.QueryExecModeSimpleProtocol {
			continue // it is the same to the detector
		}
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(pgtest.Shared(t).DSN)
			require.NoError(t, err)
			cfg.ConnConfig.DefaultQueryExecMode, cfg.MaxConns = mode, 4
			if begun.whole { // each open claim has a connection until its case ends
				cfg.MaxConns = 64
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			storetest.Run(t, storetest.Harness{
				New: func(t testing.TB) (store.Store, func(time.Duration)) {
					if begun.whole {
						return newUnrecorded(t, pool)
					}
					s, table := newStore(t, pool, pgstore.WithConns(3))
					return s, clock(t, pool, table)
				},
				Transactions: begun.transactions(pool),
			})
		})
	}
}

// newUnrecorded returns a store of one-commit claims.
func newUnrecorded(t testing.TB, pool *pgxpool.Pool) (guardtest.Unrecorded, func(time.Duration)) {
	store, table := newStore(t, pool, pgstore.WithConns(3), pgstore.WithOneCommit(pgx.ReadCommitted))
	s := guardtest.NewUnrecorded(store)
	return s, s.Passes(clock(t, pool, table))
}

// Two values that are made with one pool for one table are one store, however the table is named. A run
// joins transactions of the value that its guard has.
func TestStoresAreTheSame(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	other := func(pool *pgxpool.Pool, table string) *pgstore.Store {
		o, err := pgstore.New(t.Context(), pool, pgstore.WithTable(table), pgstore.WithConns(1))
		require.NoError(t, err)
		t.Cleanup(o.Close)
		return o
	}
	same := other(pool, table)
	require.True(t, store.Same(s, same))
	require.True(t, store.Same(s, other(pool, "public."+table)))
	another, _ := newStore(t, pool)
	require.False(t, store.Same(s, another))
	require.False(t, store.Same(s, other(pgtest.Shared(t).Pool(t), table)))

	g, err := idempotency.New(s, idempotency.SharedScope, idempotency.WithTransaction(true))
	require.NoError(t, err)
	_, _, err = idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: "k"}, func(ctx context.Context) (int, error) {
		_, err := same.Begin(ctx, pgx.TxOptions{})
		return 0, err
	})
	require.ErrorIs(t, err, idempotency.ErrOtherStore)
}
