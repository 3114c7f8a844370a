package sqlitestore_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A backup that SQLite makes while the store is open has rows and records. A copy of the file without the file
// beside it has not.
func TestBackup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "orders.db")
	s := open(t, path)
	require.NoError(t, s.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "CREATE TABLE orders (item TEXT); INSERT INTO orders VALUES ('tea')")
		return err
	}))
	_, err := s.Claim(t.Context(), "k", newClaim())
	require.NoError(t, err)

	backUp(t, path)
	alone, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "alone.db"), alone, 0o600))

	records := func(file string) (n int, err error) {
		db, err := sql.Open("sqlite", filepath.Join(dir, file))
		require.NoError(t, err)
		defer func() { _ = db.Close() }()
		err = db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM idempotency_records) * (SELECT count(*) FROM orders)").Scan(&n)
		return n, err
	}
	n, err := records("backup.db")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, _ = records("alone.db")
	require.Zero(t, n)
}
