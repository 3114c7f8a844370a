package sqlitestore_test

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// Answers are in the file, and for a while in those beside it. Other users of the machine need not read
// them, whatever their names.
func TestFilesAreForTheirOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	t.Parallel()
	guardtest.Each(t, map[string]fs.FileMode{"new": 0, "of a group": 0o640, "of everybody": 0o644}, func(t *testing.T, there fs.FileMode) {
		dir := filepath.Join(t.TempDir(), "a b+c%20d&e=f?g#h")
		require.NoError(t, os.Mkdir(dir, 0o755))
		path, want := filepath.Join(dir, "records+1.db"), fs.FileMode(0o600)
		if there != 0 {
			want = there
			require.NoError(t, os.WriteFile(path, nil, there))
			require.NoError(t, os.Chmod(path, there)) // past the umask
		}
		s := open(t, path)
		guardtest.Claim(t, s, "key", store.Claim{Owner: store.Owner{1}, Lease: 1e9, Retention: 1e10})
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		modes := map[string]fs.FileMode{}
		for _, entry := range entries {
			info, err := entry.Info()
			require.NoError(t, err)
			modes[entry.Name()] = info.Mode()
		}
		require.Equal(t, map[string]fs.FileMode{"records+1.db": want, "records+1.db-wal": want, "records+1.db-shm": want}, modes)
	})
}

// Several processes of a service begin at the same time, and so do several parts of one.
func TestFileIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "records.db")
	var stores [8]*sqlitestore.Store
	var errs [len(stores)]error
	guardtest.Together(len(stores), func(i int) { stores[i], errs[i] = sqlitestore.Open(t.Context(), path) })
	mine := 0
	for i, s := range stores {
		require.NoError(t, errs[i])
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		r := guardtest.Claim(t, s, "key", store.Claim{Owner: store.Owner{byte(i), 1}, Lease: 1e10, Retention: 1e11})
		if r.Mine {
			mine++
		}
	}
	require.Equal(t, 1, mine)
	info, err := os.Stat(path)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, fs.FileMode(0o600), info.Mode())
	}
}

func TestFileThatCannotBeMade(t *testing.T) {
	t.Parallel()
	_, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "not there", "records.db"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "sqlitestore: Open: ")
}

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
	guardtest.Claim(t, s, "k", newClaim())

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
	guardtest.Each(t, map[string]bool{"as documented": false, "with the old log": true}, func(t *testing.T, left bool) {
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
