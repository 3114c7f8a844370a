package sqlitestore_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

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
