package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/pgstore"
)

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
		_, err := pool.Exec(t.Context(), "CREATE TABLE "+table+" (name text NOT NULL, later text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		require.NoError(t, err)
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
