package sqlitestore_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

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
	for name, there := range map[string]fs.FileMode{"new": 0, "of a group": 0o640, "of everybody": 0o644} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "a b+c%20d&e=f?g#h")
			require.NoError(t, os.Mkdir(dir, 0o755))
			path, want := filepath.Join(dir, "records+1.db"), fs.FileMode(0o600)
			if there != 0 {
				want = there
				require.NoError(t, os.WriteFile(path, nil, there))
				require.NoError(t, os.Chmod(path, there)) // past the umask
			}
			s := open(t, path)
			_, err := s.Claim(t.Context(), "key", store.Claim{Owner: store.Owner{1}, Lease: 1e9, Retention: 1e10})
			require.NoError(t, err)
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
}

// Several processes of a service begin at the same time, and so do several parts of one.
func TestFileIsMadeOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "records.db")
	var stores [8]*sqlitestore.Store
	var errs [len(stores)]error
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() { stores[i], errs[i] = sqlitestore.Open(t.Context(), path) })
	}
	all.Wait()
	mine := 0
	for i, s := range stores {
		require.NoError(t, errs[i])
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		r, err := s.Claim(t.Context(), "key", store.Claim{Owner: store.Owner{byte(i), 1}, Lease: 1e10, Retention: 1e11})
		require.NoError(t, err)
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
