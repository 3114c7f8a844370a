package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
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
	guardtest.RequireNested(t, s, open(t, link))
}

// A cursor comes from outside: out of the address of a page of a console, for example. A store goes on
// from those that it has returned for the query, and refuses every other text. pgstore reads them with the
// same code.
func FuzzListCursor(f *testing.F) {
	st, err := sqlitestore.Open(f.Context(), filepath.Join(f.TempDir(), "records.db"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = st.Close() })
	for i := range 6 {
		_, err := st.Claim(f.Context(), fmt.Sprintf("%043d", i), store.Claim{
			Owner: store.Owner{byte(i), 1}, Lease: time.Hour, Retention: 24 * time.Hour, Hold: true, Label: []string{"a", "b"}[i%2],
		})
		if err != nil {
			f.Fatal(err)
		}
	}
	// Each process of the fuzzer has its own file, and they must return the same cursors.
	if err := st.InTx(f.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE idempotency_records SET since = 1000000 + rowid")
		return err
	}); err != nil {
		f.Fatal(err)
	}
	claimed := []store.State{store.Claimed}
	queries := []store.Query{
		{}, {Holding: true}, {Label: "a"}, {Label: "b", Holding: true}, {States: claimed}, {States: claimed, Label: "a", Holding: true},
	}
	returned := make([]map[string]bool, len(queries)) // the cursors, by query
	for i, q := range queries {
		returned[i] = map[string]bool{"": true}
		for q.Limit = 1; ; {
			page, err := st.List(f.Context(), q)
			if err != nil {
				f.Fatal(err)
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
			returned[i][q.Cursor] = true
			for j := range queries {
				f.Add(q.Cursor, j)
			}
			f.Add(q.Cursor+"A", i)
			f.Add(q.Cursor+"\n", i)
			f.Add(q.Cursor[:len(q.Cursor)-1], i)
			f.Add(q.Cursor[4:], i)
		}
	}
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAA", 0)
	f.Fuzz(func(t *testing.T, cursor string, query int) {
		i := max(query%len(queries), -query%len(queries))
		q := queries[i]
		q.Cursor = cursor
		page, err := st.List(t.Context(), q)
		switch {
		case returned[i][cursor]:
			if err != nil {
				t.Errorf("List of %+v refuses its own cursor: %v", q, err)
			}
		case !errors.Is(err, store.ErrBadCursor):
			t.Errorf("List of %+v: %d records and the error %v, want a bad cursor", q, len(page.Entries), err)
		}
	})
}
