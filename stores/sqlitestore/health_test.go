package sqlitestore_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// This file is about what a store says of itself.

// What is wrong with a disk and a log is told, and nothing else.
func TestFaultsOfAFile(t *testing.T) {
	const room = 64 << 20
	type row struct {
		free, waits int64
		err         error
		want        string
	}
	guardtest.Each(t, map[string]row{
		"well":      {free: room, waits: room},
		"full":      {free: room - 1, want: "67108863 bytes are left on the disk"},
		"read only": {free: room, err: syscall.EROFS, want: "may not write the file"},
		"log waits": {free: room, waits: room + 1, want: "67108865 bytes of the log"},
	}, func(t *testing.T, c row) {
		err := errors.Join(sqlitestore.Faults(c.free, c.err, c.waits)...)
		if c.want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, c.want)
	})
}

// A store is well until its path names another file, or a reader keeps its log from being moved.
func TestHealthOfSQLite(t *testing.T) {
	beforeMoving(t)
	path := filepath.Join(t.TempDir(), "records.db")
	s, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	requireWell := func() {
		faults, err := s.Health(t.Context())
		require.NoError(t, err)
		require.Empty(t, faults)
	}
	requireWell()

	reader, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	reads, err := reader.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, reads.QueryRowContext(t.Context(), "SELECT count(*) FROM idempotency_records").Scan(new(int)))
	guardtest.ExecSQLite(t, path, "CREATE TABLE filled (x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70) INSERT INTO filled SELECT zeroblob(1 << 20) FROM n")
	faults, err := s.Health(t.Context())
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], "wait for a reader that does not end")
	require.NoError(t, reads.Rollback())
	requireWell() // although the file of the log is as large as before
	grown := usageOf(t, s)
	require.Greater(t, grown["log beside the file"].Used, int64(64<<20))
	require.Greater(t, grown["file"].Used, int64(70<<20))
	require.Zero(t, grown["free in the file"].Used)
	guardtest.ExecSQLite(t, path, "DROP TABLE filled")
	require.Greater(t, usageOf(t, s)["free in the file"].Used, int64(64<<20))

	require.NoError(t, os.Rename(path, path+"-moved"))
	faults, err = s.Health(t.Context())
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.ErrorIs(t, faults[0], sqlitestore.ErrMoved)
	_, err = s.Usage(t.Context())
	require.ErrorIs(t, err, sqlitestore.ErrMoved)
}

// usageOf returns the figures of a store by their names.
func usageOf(t *testing.T, s store.Gauge) map[string]store.Figure {
	t.Helper()
	all, err := s.Usage(t.Context())
	require.NoError(t, err)
	named := map[string]store.Figure{}
	for _, f := range all {
		named[f.Name] = f
	}
	return named
}
