package sqlitestore_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
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

// A backup is restored after the last process was killed, step by step as the documentation has it. Who leaves the
// -wal of the dead process there does not get the backup: SQLite replays it over the file.
func TestRestore(t *testing.T) {
	t.Parallel()
	const before, after = 20, 40
	for name, left := range map[string]bool{"as documented": false, "with the old log": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := contest{Path: filepath.Join(t.TempDir(), "records.db"), Keys: before, Claimers: 1}
			p := start(t, "claimer")
			p.tell(t, r)
			require.NoError(t, p.hear(new(any)))
			r.once(t, []*process{p})
			backup := backUp(t, r.Path)
			r.Keys = after
			p.tell(t, r)
			require.NoError(t, p.hear(new(result)))
			require.NoError(t, p.cmd.Process.Kill())
			_ = p.cmd.Wait()

			if !left {
				takeAway(t, r.Path)
			}
			copied, err := os.ReadFile(backup)
			require.NoError(t, err)
			restored := r.Path + "-restored"
			require.NoError(t, os.WriteFile(restored, copied, 0o600))
			require.NoError(t, os.Rename(restored, r.Path))
			s := open(t, r.Path)
			n := len(guardtest.List(t, s, store.Query{}))
			if left {
				require.Equal(t, after, n)
				return
			}
			require.Equal(t, before, n)
			var check string
			require.NoError(t, s.Reader().QueryRow("PRAGMA integrity_check").Scan(&check))
			require.Equal(t, "ok", check)
		})
	}
}
