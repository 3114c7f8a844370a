//go:build unix

package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client/journal"
)

// This file looks at the files that a journal makes for itself beside its own.

// beside returns the name of a file that a journal makes for itself.
func beside(path, what string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".journal-"+what)
}

// The next process removes the files that a killed one has left half made.
func TestJournalRemovesLeftovers(t *testing.T) {
	path := inDir(t)
	for _, leftover := range []string{"new", "new-123", "new-old.txt"} {
		require.NoError(t, os.WriteFile(beside(path, leftover), []byte("half"), 0o600))
	}
	j := open(t, path)
	require.NoError(t, j.Close())
	require.NoError(t, os.Link(path, beside(path, "new-77"))) // killed between two steps of making it
	open(t, path)
	require.NoFileExists(t, beside(path, "new-77"))
	require.NoFileExists(t, beside(path, "new"))
	require.NoFileExists(t, beside(path, "new-123"))
	require.FileExists(t, beside(path, "new-old.txt"), "which is somebody else's")
}

// A journal whose name looks as if it belonged to another one keeps its file and its keys, while the
// other one is made, opened, written anew and opened again.
func TestJournalLeavesOtherJournalsAlone(t *testing.T) {
	path := inDir(t)
	keys := make(map[string]string)
	for _, suffix := range []string{".new", ".new-2026", ".lock", ".journal", ".journal-new", ".journal-new-1", ".journal-lock"} {
		other := open(t, path+suffix)
		keys[path+suffix] = begin(t, other, "a").Key
		require.NoError(t, other.Close())
	}
	j := open(t, path)
	outgrow(t, j)
	require.NoError(t, j.Done(t.Context(), "large", nil))
	reopen(t, j, path)
	for other, key := range keys {
		require.Equal(t, map[string]string{"a": key}, pending(t, open(t, other)), other)
	}
}

// The names of the files that a journal makes for itself are refused for journals, and what has such a
// name is left as it is.
func TestJournalRefusesItsOwnNames(t *testing.T) {
	path := inDir(t)
	link := filepath.Join(t.TempDir(), "link")
	for _, name := range []string{beside(path, "new"), beside(path, "new-1"), beside(path, "lock"), beside(path, "NEW-20")} {
		_, err := journal.Open(name)
		require.ErrorContains(t, err, "files of their own")
		require.NoFileExists(t, name)
		require.NoError(t, os.WriteFile(name, []byte("half"), 0o600))
		_, err = journal.Open(name)
		require.ErrorContains(t, err, "files of their own")
		require.NoError(t, os.Symlink(name, link))
		_, err = journal.Open(link)
		require.ErrorContains(t, err, "files of their own", "also by another name")
		require.NoError(t, os.Remove(link))
		require.FileExists(t, name)
	}
	for _, name := range []string{beside(path, "new-"), beside(path, "new-x"), beside(path, "old"), filepath.Join(filepath.Dir(path), "x.journal-new")} {
		open(t, name)
	}
}

// The name of the file that takes the place of a journal can be guessed. Whoever plants a link
// there, before or in the middle, has nothing written through it.
func TestJournalWritesThroughNoPlantedLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("not yours"), 0o600))
	for i := range 40 {
		path := filepath.Join(dir, fmt.Sprint("journal", i))
		j := open(t, path)
		key := begin(t, j, "a").Key
		require.NoError(t, os.Symlink(victim, beside(path, "new")))
		var planting sync.WaitGroup
		stop := make(chan struct{})
		planting.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = os.Symlink(victim, beside(path, "new"))
				}
			}
		})
		_, err := j.Begin(t.Context(), "large", journal.Request{Body: make([]byte, 100<<10)})
		close(stop)
		planting.Wait()
		if err != nil { // the link was there again; the journal is as it was
			require.ErrorIs(t, err, os.ErrExist)
		}
		require.Equal(t, key, begin(t, reopen(t, j, path), "a").Key)
		content, err := os.ReadFile(victim)
		require.NoError(t, err)
		require.Equal(t, "not yours", string(content))
	}
}
