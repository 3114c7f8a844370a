//go:build unix

package client_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client"
)

func openJournal(t *testing.T, path string) *client.FileJournal {
	t.Helper()
	j, err := client.OpenJournal(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func begin(t *testing.T, j client.Journal, name string) client.Entry {
	t.Helper()
	e, err := j.Begin(t.Context(), name, []byte("payload of "+name))
	require.NoError(t, err)
	return e
}

func pending(t *testing.T, j client.Journal) map[string]string {
	t.Helper()
	entries, err := j.Pending(t.Context())
	require.NoError(t, err)
	keys := make(map[string]string)
	for _, e := range entries {
		require.True(t, e.Resumed)
		require.Equal(t, "payload of "+e.Name, string(e.Payload))
		keys[e.Name] = e.Key
	}
	return keys
}

func TestJournalKeepsWhatIsPending(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a, b := begin(t, j, "a"), begin(t, j, "b")
	require.NotEqual(t, a.Key, b.Key)
	require.False(t, a.Resumed)
	again, err := j.Begin(t.Context(), "a", []byte("other bytes"))
	require.NoError(t, err)
	require.True(t, again.Resumed)
	require.Equal(t, a.Key, again.Key)
	require.Equal(t, "payload of a", string(again.Payload), "what was sent is sent again")
	require.NoError(t, j.Done(t.Context(), "b"))
	require.NoError(t, j.Done(t.Context(), "b"))
	require.NoError(t, j.Done(t.Context(), "never begun"))
	require.Equal(t, map[string]string{"a": a.Key}, pending(t, j))
	require.NotEqual(t, b.Key, begin(t, j, "b").Key, "another intent of the same name")

	for _, file := range []string{path, path + ".lock"} {
		info, err := os.Stat(file)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	}
	_, err = client.OpenJournal(path)
	require.ErrorIs(t, err, client.ErrJournalLocked)
	want := pending(t, j)
	require.NoError(t, j.Close())
	require.NoError(t, j.Close())
	_, err = j.Begin(t.Context(), "c", nil)
	require.ErrorIs(t, err, client.ErrJournalBroken)
	_, err = j.Begin(t.Context(), "a", nil)
	require.ErrorIs(t, err, client.ErrJournalBroken)
	require.ErrorIs(t, j.Done(t.Context(), "a"), client.ErrJournalBroken)
	_, err = j.Pending(t.Context())
	require.ErrorIs(t, err, client.ErrJournalBroken)

	j = openJournal(t, path)
	require.Equal(t, want, pending(t, j))
	entries, err := j.Pending(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, []string{entries[0].Name, entries[1].Name}, "the oldest first")
	require.True(t, a.Since.Equal(entries[0].Since))
	entries[0].Payload[0] = 'X'
	require.Equal(t, want, pending(t, j), "what is handed out is a copy")
	for _, name := range []string{"", "\xff"} {
		_, err = j.Begin(t.Context(), name, nil)
		require.ErrorContains(t, err, "no name for an intent")
	}
}

// A process that dies while it writes leaves a part of the line, and a machine also one with
// holes. What was being written was not acknowledged.
// None of the lines before is lost, and the next one is whole.
func TestJournalToleratesATornEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := openJournal(t, filepath.Join(dir, "whole"))
	a := begin(t, j, "a")
	before, err := os.ReadFile(filepath.Join(dir, "whole"))
	require.NoError(t, err)
	begin(t, j, "b")
	whole, err := os.ReadFile(filepath.Join(dir, "whole"))
	require.NoError(t, err)
	check := func(name string, data []byte) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		j := openJournal(t, path)
		require.Equal(t, map[string]string{"a": a.Key}, pending(t, j), name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Len(t, before, int(info.Size()), "%s: what was torn is cut off", name)
		c := begin(t, j, "c")
		require.NoError(t, j.Close())
		j = openJournal(t, path)
		require.Equal(t, map[string]string{"a": a.Key, "c": c.Key}, pending(t, j), name)
		require.NoError(t, j.Close())
	}
	for n := len(before); n < len(whole); n += 7 {
		check(fmt.Sprint("cut", n), whole[:n])
	}
	check("cut before the newline", whole[:len(whole)-1])
	check("zeros", append(bytes.Clone(before), make([]byte, 100)...))
	for _, hole := range []int{len(before), len(before) + 20} {
		holed := bytes.Clone(whole)
		clear(holed[hole : hole+20])
		check(fmt.Sprint("hole at ", hole), holed)
	}
}

// Damage to anything else may have taken a key that was sent. A file that is none of ours may
// be dear to somebody.
func TestJournalRefusesDamage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	begin(t, j, "a")
	begin(t, j, "b")
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"garbled":         append([]byte("x"), whole[1:]...),
		"a hole":          append([]byte("\x00"), whole[1:]...),
		"garbled end":     bytes.Replace(whole, []byte(`"name":"b"`), []byte(`"name":"c"`), 1),
		"newline":         append([]byte("\n"), whole...),
		"a future":        append(bytes.Clone(whole), client.EncodeLine(`{"v":2,"name":"c"}`)...),
		"a line of text":  []byte("dear diary\n"),
		"a word":          []byte("dear"),
		"another journal": []byte(`0 {"v":`),
		"a database":      []byte("SQLite format 3\x00\x10\x00"),
	} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		_, err = client.OpenJournal(path)
		require.ErrorIs(t, err, client.ErrJournalCorrupt, name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, data, after, "a file that is refused is left alone")
	}
}

func TestJournalStaysSmall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	keep := []string{begin(t, j, "first").Key}
	payload := []byte(strings.Repeat("x", 100<<10))
	for i := range 40 {
		name := fmt.Sprint("order ", i)
		_, err := j.Begin(t.Context(), name, payload)
		require.NoError(t, err)
		require.NoError(t, j.Done(t.Context(), name))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(2<<20))
	}
	keep = append(keep, begin(t, j, "last").Key)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	_, err = client.OpenJournal(path)
	require.ErrorIs(t, err, client.ErrJournalLocked, "also after the file was replaced")
	require.NoError(t, j.Close())
	j = openJournal(t, path)
	require.Equal(t, map[string]string{"first": keep[0], "last": keep[1]}, pending(t, j))
	entries, err := j.Pending(t.Context())
	require.NoError(t, err)
	require.Equal(t, "first", entries[0].Name)
}

// A file that could not take the place of the old one is not left on a disk that may be
// full, where the next intent needs the room.
func TestJournalThatCannotBeWrittenAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal")
	j := openJournal(t, path)
	a := begin(t, j, "a")
	_, err := j.Begin(t.Context(), "large", make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, os.Rename(path, path+".old"))
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, j.Done(t.Context(), "large"))
	require.NoFileExists(t, path+".new")
	b := begin(t, j, "b")
	require.NoError(t, j.Close())
	require.Equal(t, map[string]string{"a": a.Key, "b": b.Key}, pending(t, openJournal(t, path+".old")))
}

// The file that is written anew is the one that was opened, and locked under any name.
func TestJournalBehindALink(t *testing.T) {
	t.Parallel()
	volume, link := t.TempDir(), filepath.Join(t.TempDir(), "journal")
	path := filepath.Join(volume, "journal")
	require.NoError(t, os.Symlink(path, link))
	j := openJournal(t, link)
	_, err := client.OpenJournal(path)
	require.ErrorIs(t, err, client.ErrJournalLocked)
	_, err = j.Begin(t.Context(), "large", make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, j.Done(t.Context(), "large"))
	key := begin(t, j, "a").Key
	require.NoError(t, j.Close())
	j = openJournal(t, path)
	require.Equal(t, map[string]string{"a": key}, pending(t, j))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<20), "it was to be written anew")
}

// So it is where the program has changed its directory.
func TestJournalInARelativePlace(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	j := openJournal(t, "journal")
	t.Chdir(t.TempDir())
	_, err := j.Begin(t.Context(), "large", make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, j.Done(t.Context(), "large"))
	key := begin(t, j, "a").Key
	require.NoError(t, j.Close())
	require.Equal(t, map[string]string{"a": key}, pending(t, openJournal(t, filepath.Join(dir, "journal"))))
}

func TestJournalIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	j := openJournal(t, filepath.Join(t.TempDir(), "journal"))
	var wg sync.WaitGroup
	var mu sync.Mutex
	keys := make(map[string]string)
	for i := range 64 {
		wg.Go(func() {
			name := fmt.Sprint("order ", i%8)
			e, err := j.Begin(t.Context(), name, []byte("payload of "+name))
			mu.Lock()
			defer mu.Unlock()
			if old, ok := keys[name]; err != nil || ok && old != e.Key {
				t.Errorf("%s has the keys %s and %s: %v", name, old, e.Key, err)
			}
			keys[name] = e.Key
		})
	}
	wg.Wait()
	require.Equal(t, keys, pending(t, j))
}

// A key that the server has forgotten would be a new one.
func TestEntryThatIsTooOldIsNotSent(t *testing.T) {
	t.Parallel()
	base := answering(answer{status: 201})
	transport := newTransport(t, base, client.WithTTL(time.Hour))
	old := client.Entry{Name: "a", Key: "k", Since: time.Now().Add(-time.Hour), Resumed: true}
	body := &countedBody{Reader: once("{}")}
	_, err := send(transport, request(old.Context(t.Context()), "POST", place, body))
	require.ErrorIs(t, err, client.ErrKeyExpired)
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.Equal(t, client.ReasonTTL, failure(t, err).Reason)
	require.Empty(t, base.requests())
	require.True(t, body.closed.Load())

	old.Since = time.Now().Add(-time.Hour + time.Minute)
	_, err = send(transport, post(old.Context(t.Context()), place, "{}"))
	require.NoError(t, err)
	require.Equal(t, "k", base.requireOneKey(t, 1))
}

// What an earlier process has sent counts as an attempt that may have been executed.
func TestResumedEntryIsUnknownFromTheStart(t *testing.T) {
	t.Parallel()
	for _, resumed := range []bool{false, true} {
		e := client.Entry{Key: "k", Since: time.Now(), Resumed: resumed}
		_, err := send(newTransport(t, answering(answer{status: 401})), post(e.Context(t.Context()), place, "{}"))
		if resumed {
			require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		} else {
			require.NoError(t, err)
		}
	}
}
