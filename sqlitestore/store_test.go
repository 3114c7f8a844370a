package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/sqlitestore"
	"example.com/idempotency/storetest"
)

func TestStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
		path := filepath.Join(t.TempDir(), "records.db")
		s, err := sqlitestore.Open(t.Context(), path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s, clock(t, path)
	}})
}

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
