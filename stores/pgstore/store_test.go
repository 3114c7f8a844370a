package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/formtest/rows"
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
	s := openStore(t, pool, opts...)
	return s, table
}

// openStore returns a store, which is closed with the test.
func openStore(t testing.TB, pool *pgxpool.Pool, opts ...pgstore.Option) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(t.Context(), pool, opts...)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
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
			pool := pgtest.PoolOf(t, cfg)
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
		o := openStore(t, pool, pgstore.WithTable(table), pgstore.WithConns(1))
		return o
	}
	same := other(pool, table)
	require.True(t, store.Same(s, same))
	require.True(t, store.Same(s, other(pool, "public."+table)))
	guardtest.RequireNested(t, s, same)
	another, _ := newStore(t, pool)
	require.False(t, store.Same(s, another))
	require.False(t, store.Same(s, other(pgtest.Shared(t).Pool(t), table)))

	g := guardtest.NewGuardOf(t, s, idempotency.SharedScope, idempotency.WithTransaction(true))
	_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: "k"}, func(ctx context.Context) (int, error) {
		_, err := same.Begin(ctx, pgx.TxOptions{})
		return 0, err
	})
	require.ErrorIs(t, err, idempotency.ErrOtherStore)
}

// This file lets the contract of stores begin transactions of a store.

// A txMode is how a transaction is begun.
type txMode struct {
	iso   pgx.TxIsoLevel
	sql   bool // by database/sql
	whole bool // it is the claim
}

// transactions returns what makes the transactions of a store, in a table of their own.
func (w txMode) transactions(pool *pgxpool.Pool) func(t testing.TB, s store.Store) storetest.Transactions {
	return func(t testing.TB, s store.Store) storetest.Transactions {
		table := fmt.Sprintf("rows_%d", tables.Add(1))
		pgtest.Exec(t, pool, "CREATE TABLE "+table+" (name text NOT NULL, later text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		db := pgstore.OpenDB(pool)
		t.Cleanup(func() { _ = db.Close() })
		first := func() {} // before a transaction begins
		if u, ok := s.(guardtest.Unrecorded); ok && slices.ContainsFunc(leavesNothing, func(name string) bool {
			return strings.HasSuffix(t.Name(), name)
		}) {
			first = u.Settle
		}
		return transactions{w, storeOf(s), pool, db, table, first}
	}
}

// storeOf returns a store without what a test has put before it.
func storeOf(s store.Store) *pgstore.Store {
	switch s := s.(type) {
	case unwatched:
		return s.Store
	case guardtest.Unrecorded:
		return s.ClaimingStore.(*pgstore.Store)
	}
	return s.(*pgstore.Store)
}

// leavesNothing are the cases of transactions that are rolled back, or given back by somebody else. One that is
// the claim leaves nothing then, and what the contract asks for is a record.
var leavesNothing = []string{"rolls_back_without_a_record", "is_committed_or_released", "whose_commit_is_refused_is_rolled_back"}

type transactions struct {
	txMode
	store *pgstore.Store
	pool  *pgxpool.Pool
	db    *sql.DB
	table string
	first func()
}

// Exclusive is about the row of the run: a transaction at a strict level keeps it locked, and so does one that is
// the claim.
func (s transactions) Exclusive() bool { return s.whole || s.iso != pgx.ReadCommitted }

func (s transactions) Has(ctx context.Context, row string) (has bool, err error) {
	err = s.pool.QueryRow(ctx, "SELECT count(*) > 0 FROM "+s.table+" WHERE name = $1", row).Scan(&has)
	return has, err
}

func (s transactions) Begin(ctx context.Context, key string, o store.Owner) (storetest.Tx, error) {
	s.first()
	if s.sql {
		level := map[pgx.TxIsoLevel]sql.IsolationLevel{pgx.ReadCommitted: sql.LevelReadCommitted, pgx.RepeatableRead: sql.LevelRepeatableRead}
		tx, err := s.store.JoinSQLTx(ctx, s.db, key, o, &sql.TxOptions{Isolation: level[s.iso]})
		return sqlTx{tx, s.table}, err
	}
	joined, tx, err := s.store.JoinTx(ctx, key, o, pgx.TxOptions{IsoLevel: s.iso})
	return pgxTx{joined, tx, s.table}, err
}

func (s transactions) StepIn(
	ctx context.Context, r store.StepRecord, step func(context.Context, func(string) error) ([]byte, error),
) error {
	if s.sql {
		return errors.ErrUnsupported
	}
	return s.store.TryStep(ctx, pgx.TxOptions{IsoLevel: s.iso}, r, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		return step(ctx, func(row string) error { return pgxTx{nil, tx, s.table}.Insert(ctx, row) })
	})
}

// insert inserts a row, and again a value that the commit finds to be there twice.
func insert(table, row string, laters ...string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	values := []string{"(" + quote(row) + ", NULL)"}
	for _, later := range laters {
		values = append(values, "("+quote(row)+", "+quote(later)+")")
	}
	return "INSERT INTO " + table + " VALUES " + strings.Join(values, ", ")
}

type pgxTx struct {
	store.Transaction
	tx    pgx.Tx
	table string
}

func (t pgxTx) exec(ctx context.Context, query string) error {
	_, err := t.tx.Exec(ctx, query)
	return err
}

func (t pgxTx) Insert(ctx context.Context, row string) error {
	return t.exec(ctx, insert(t.table, row))
}
func (t pgxTx) Ready(ctx context.Context) error  { return t.tx.Commit(ctx) }
func (t pgxTx) GiveUp(ctx context.Context) error { return t.tx.Rollback(ctx) }
func (t pgxTx) Spoil(ctx context.Context) error {
	return t.exec(ctx, insert(t.table, "spoilt", "twice", "twice"))
}

type sqlTx struct {
	pgstore.JoinedSQLTx
	table string
}

func (t sqlTx) Insert(ctx context.Context, row string) error {
	return t.ExecContext(ctx, insert(t.table, row))
}

func (t sqlTx) Spoil(ctx context.Context) error {
	return t.ExecContext(ctx, insert(t.table, "spoilt", "twice", "twice"))
}

// A row of another version is neither read nor changed by any call.
func TestRowOfAnotherVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, pool)
	row := func(key string) (text string) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT r::text FROM "+table+" r WHERE key = $1", key).Scan(&text))
		return text
	}
	rows.Check(t, s, newClaim(), func(key, set string) error {
		_, err := pool.Exec(t.Context(), "UPDATE "+table+" SET "+set+" WHERE key = $1", key)
		return err
	}, row)
}
