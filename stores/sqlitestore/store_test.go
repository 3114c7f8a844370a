package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
	"example.com/idempotency/stores/sqlitestore"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) (store.Store, func(time.Duration)) {
			path := filepath.Join(t.TempDir(), "records.db")
			s := open(t, path)
			return s, clock(t, path)
		},
		Transactions: func(t testing.TB, s store.Store) storetest.Transactions {
			return newTransactions(t, s.(*sqlitestore.Store))
		},
	})
}

// transactions are those of a store whose file has a table of rows.
type transactions struct{ *sqlitestore.Store }

func newTransactions(t testing.TB, s *sqlitestore.Store) transactions {
	t.Helper()
	require.NoError(t, s.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("CREATE TABLE rows (name TEXT NOT NULL)")
		return err
	}))
	return transactions{s}
}

func (s transactions) Exclusive() bool { return true }

func (s transactions) Has(ctx context.Context, row string) (has bool, err error) {
	err = s.Reader().QueryRowContext(ctx, "SELECT count(*) FROM rows WHERE name = ?", row).Scan(&has)
	return has, err
}

func (s transactions) Begin(ctx context.Context, key string, o store.Owner) (storetest.Tx, error) {
	tx, err := s.Store.Begin(ctx, key, o)
	return runTx{tx}, err
}

func (s transactions) StepIn(
	context.Context, store.StepRecord, func(context.Context, func(string) error) ([]byte, error),
) error {
	return errors.ErrUnsupported
}

type runTx struct{ sqlitestore.JoinedTx }

func (tx runTx) Insert(ctx context.Context, row string) error {
	return tx.Exec(ctx, "INSERT INTO rows VALUES (?)", row)
}

// Spoil is for databases that check something at the commit. The store's connection does not.
func (tx runTx) Spoil(context.Context) error { return errors.ErrUnsupported }

// clock returns a function that lets time pass for all records of a file: it moves them into the
// past.
func clock(t testing.TB, path string) func(time.Duration) {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return func(d time.Duration) {
		_, err := db.ExecContext(context.Background(), `UPDATE idempotency_records SET since = since - ?1, touched = touched - ?1,
			expires = CASE WHEN expires = 9223372036854775807 THEN expires ELSE expires - ?1 END`, d.Microseconds())
		require.NoError(t, err)
	}
}

// Two values that have opened one file are one store, by whatever path.
func TestStoresAreTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "records.db"), filepath.Join(dir, "link.db")
	s := open(t, path)
	require.NoError(t, os.Symlink(path, link))
	require.True(t, store.Same(s, open(t, path)))
	require.True(t, store.Same(s, open(t, link)))
	require.False(t, store.Same(s, open(t, filepath.Join(dir, "another.db"))))
}
