//go:build unix

package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/client/journal"
)

// Whatever single thing happens to a file, no name gets a new key: the journal opens with the
// keys that it had, or refuses and names the line. CLIENT_EXHAUSTIVE tries each truncation and
// each bit, but for the zeros that no line is near: there, those at the ends of each sector, and every 61st.
// Otherwise a sample is tried, with all that is around the ends of the last line.
func TestEveryTruncationAndBitFlip(t *testing.T) {
	const entries = 50
	path := inDir(t)
	j := open(t, path)
	want := make(map[string]string)
	for i := range entries {
		name := fmt.Sprint("order ", i)
		want[name] = begin(t, j, name).Key
		if i%3 == 0 {
			require.NoError(t, j.Done(t.Context(), name, []byte("result")))
		}
	}
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	used := len(bytes.TrimRight(whole, "\x00"))
	last := bytes.LastIndexByte(whole[:used-1], '\n') + 1
	require.Greater(t, used, 10_000)
	require.Less(t, used, len(whole))
	tried := func(at int) bool {
		ends := at >= last && at < last+12 || at >= used-12 && at < used+4
		near := at < used+4096 || at >= len(whole)-64
		return ends || at%509 == 0 || at > used && at%2048 == 0 ||
			exhaustive && (near || at%512 == 0 || at%512 == 511 || at%61 == 0)
	}
	named := regexp.MustCompile(`line \d+, at byte \d+`)
	var resumed, refused atomic.Int64
	check := func(what string, at int, data []byte) {
		keys, err := journal.Keys(data)
		switch {
		case err == nil && maps.Equal(want, keys):
			resumed.Add(1)
		case errors.Is(err, journal.ErrCorrupt) && named.MatchString(err.Error()):
			refused.Add(1)
		default:
			t.Errorf("%s at %d: %d keys, %v", what, at, len(keys), err)
		}
	}
	var wg sync.WaitGroup
	for part := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			damaged := bytes.Clone(whole)
			for at := part; at < len(whole) && !t.Failed(); at += runtime.GOMAXPROCS(0) {
				if !tried(at) {
					continue
				}
				check("cut", at, whole[:at])
				for bit := range 8 {
					damaged[at] ^= 1 << bit
					check("bit flipped", at, damaged)
					damaged[at] ^= 1 << bit
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d bytes, %d of them lines: %d damaged files have the same keys, %d are refused with the line",
		len(whole), used, resumed.Load(), refused.Load())
	require.Positive(t, resumed.Load())
	require.Greater(t, refused.Load(), resumed.Load()/100)
}

var exhaustive = os.Getenv("CLIENT_EXHAUSTIVE") != ""

// A process that dies while it writes leaves a part of the line, and a machine also one with
// holes of whole sectors. What was being written was not acknowledged. None of the lines
// before is lost, and the next one is whole.
func TestJournalToleratesATornEnd(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "whole")
	j := open(t, path)
	a := begin(t, j, "a")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	long := requestOf("b")
	long.Body = []byte(strings.Repeat("long body ", 200))
	b, err := j.Begin(t.Context(), "b", long)
	require.NoError(t, err)
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	from, to := len(bytes.TrimRight(before, "\x00")), len(bytes.TrimRight(whole, "\x00"))
	check := func(name string, data []byte, want map[string]string) {
		t.Helper()
		torn := filepath.Join(dir, "torn")
		require.NoError(t, os.WriteFile(torn, data, 0o600))
		j := open(t, torn)
		require.Equal(t, want, keysOf(t, j), name)
		want["c"] = begin(t, j, "c").Key
		j = reopen(t, j, torn)
		require.Equal(t, want["c"], begin(t, j, "c").Key, name)
		require.NoError(t, j.Close())
	}
	for n := from; n < to-1; n += 97 {
		data := bytes.Clone(whole)
		clear(data[n:])
		check(fmt.Sprint("cut at ", n), data, map[string]string{"a": a.Key})
	}
	data := bytes.Clone(whole)
	clear(data[to-1:])
	check("only the newline is missing", data, map[string]string{"a": a.Key, "b": b.Key})
	for sector := from / 512; sector <= (to-1)/512; sector++ {
		data := bytes.Clone(whole)
		clear(data[max(from, sector*512):min(to, sector*512+512)])
		if sector*512 <= to-1 && to-1 < sector*512+1 {
			continue // the case above
		}
		check(fmt.Sprint("without sector ", sector), data, map[string]string{"a": a.Key})
	}
}

// A file that is no journal may be dear to somebody.
func TestJournalLeavesOtherFilesAlone(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	begin(t, j, "a")
	begin(t, j, "b")
	require.NoError(t, j.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	used := len(bytes.TrimRight(whole, "\x00"))
	with := func(line []byte) []byte {
		data := bytes.Clone(whole)
		copy(data[used:], line)
		return data
	}
	for name, c := range map[string]struct {
		data []byte
		err  error
		want string
	}{
		"empty":            {nil, journal.ErrCorrupt, "line 1"},
		"a line of text":   {[]byte("dear diary\n"), journal.ErrCorrupt, "line 1"},
		"a word":           {[]byte("dear"), journal.ErrCorrupt, "line 1"},
		"a database":       {[]byte("SQLite format 3\x00\x10\x00"), journal.ErrCorrupt, "line 1"},
		"another version":  {journal.EncodeLine(`{"journal":2,"size":65536}`), journal.ErrVersion, "version 2"},
		"unknown setting":  {journal.EncodeLine(`{"journal":1,"size":65536,"more":1}`), journal.ErrVersion, "more"},
		"no version":       {journal.EncodeLine(`{"name":"a","key":"k"}`), journal.ErrCorrupt, "line 1"},
		"unknown member":   {with(journal.EncodeLine(`{"name":"c","key":"k","more":1}`)), journal.ErrVersion, "line 4"},
		"altered":          {bytes.Replace(whole, []byte(`"name":"b"`), []byte(`"name":"c"`), 1), journal.ErrCorrupt, "line 3"},
		"a line of others": {with([]byte("dear diary\n")), journal.ErrCorrupt, "line 4"},
		"something behind": {append(bytes.Clone(whole), "more"...), journal.ErrCorrupt, "should have"},
		"a line is gone":   {append(bytes.Clone(whole[:used-2]), make([]byte, len(whole)-used)...), journal.ErrCorrupt, "should have"},
	} {
		require.NoError(t, os.WriteFile(path, c.data, 0o600))
		_, err = journal.Open(path)
		require.ErrorIs(t, err, c.err, name)
		require.ErrorContains(t, err, c.want, name)
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(c.data, after), "%s: a file that is refused is left alone", name)
	}
}

func TestJournalStaysSmall(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	keep := map[string]string{"first": begin(t, j, "first").Key}
	body := []byte(strings.Repeat("x", 100<<10))
	for i := range 40 {
		name := fmt.Sprint("order ", i)
		_, err := j.Begin(t.Context(), name, journal.Request{Body: body})
		require.NoError(t, err)
		require.NoError(t, j.Done(t.Context(), name, nil))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(1<<20))
	}
	keep["last"] = begin(t, j, "last").Key
	requireRefused(t, path, journal.ErrLocked)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "and nothing is left behind")
	j = reopen(t, j, path)
	require.Equal(t, keep, pending(t, j))
	require.True(t, begin(t, j, "order 39").Done())
}

// Only the owner can read the file, also if another program made it.
func TestJournalTakesPermissionsAway(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	begin(t, j, "a")
	require.NoError(t, j.Close())
	require.NoError(t, os.Chmod(path, 0o644))
	j = open(t, path)
	for range 2 {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		outgrow(t, j)
	}
}

// No second name of the file lets a second writer in, and nobody else's removal does.
func TestJournalHasOneWriterUnderAnyName(t *testing.T) {
	dir := t.TempDir()
	path, second := filepath.Join(dir, "journal"), filepath.Join(dir, "second")
	j := open(t, path)
	key := begin(t, j, "a").Key
	require.NoError(t, os.Link(path, second))
	requireRefused(t, second, journal.ErrLocked)
	_ = os.Remove(beside(path, "lock"))
	requireRefused(t, path, journal.ErrLocked)
	_, err := j.Begin(t.Context(), "large", journal.Request{Body: make([]byte, 1<<20)})
	require.ErrorIs(t, err, journal.ErrMoved, "a new file would not be the one of the other name")
	require.NoError(t, j.Close())
	requireRefused(t, second, journal.ErrMoved)
	require.NoError(t, os.Remove(second))
	j = open(t, path)
	require.Equal(t, map[string]string{"a": key}, pending(t, j))

	// A name that the old file has when a new one replaces it leads to nothing.
	old, err := os.Open(path)
	require.NoError(t, err)
	defer old.Close()
	outgrow(t, j)
	retired := make([]byte, 60)
	_, err = old.ReadAt(retired, 0)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(second, retired, 0o600))
	requireRefused(t, second, journal.ErrMoved)
}

// A journal does not acknowledge a line that the next process would not find.
func TestJournalThatIsMovedAwayIsBroken(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"moved":    func(path string) error { return os.Rename(path, path+".old") },
		"removed":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		for what, call := range map[string]func(*journal.Journal) error{
			"begin":       func(j *journal.Journal) error { _, err := j.Begin(t.Context(), "b", journal.Request{}); return err },
			"begin again": func(j *journal.Journal) error { _, err := j.Begin(t.Context(), "a", journal.Request{}); return err },
			"done":        func(j *journal.Journal) error { return j.Done(t.Context(), "a", nil) },
			"pending":     func(j *journal.Journal) error { _, err := j.Pending(t.Context()); return err },
		} {
			path := inDir(t)
			j := open(t, path)
			begin(t, j, "a")
			require.NoError(t, move(path))
			require.ErrorIs(t, call(j), journal.ErrMoved, "%s, %s", name, what)
			require.ErrorIs(t, call(j), journal.ErrBroken, "%s, %s", name, what)
		}
	}
}

// A file that cannot be written anew is an error of the call that needs the room. The old
// file is whole, nothing is left behind, and what fits is still taken.
func TestJournalThatCannotBeWrittenAnew(t *testing.T) {
	path := inDir(t)
	j := open(t, path)
	a := begin(t, j, "a")
	require.NoError(t, os.Mkdir(beside(path, "new"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(beside(path, "new"), "in the way"), nil, 0o600))
	_, err := j.Begin(t.Context(), "large", journal.Request{Body: make([]byte, 1<<20)})
	require.ErrorContains(t, err, "anew")
	b := begin(t, j, "b")
	require.Equal(t, map[string]string{"a": a.Key, "b": b.Key}, pending(t, j))
	require.NoError(t, os.RemoveAll(beside(path, "new")))
	outgrow(t, j)
	require.NoError(t, j.Done(t.Context(), "large", nil))
	require.Equal(t, map[string]string{"a": a.Key, "b": b.Key}, pending(t, reopen(t, j, path)))
}

// A disk that is full takes no new file, and the journal says so. The room that the file has
// already is its own.
func TestJournalOnAFullDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the limit on the size of files is that of Linux")
	}
	path := inDir(t)
	j := open(t, path)
	a := begin(t, j, "a")
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 100 << 10, Max: old.Max}))
	_, err := j.Begin(t.Context(), "large", journal.Request{Body: make([]byte, 1<<20)})
	limited := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old)
	require.NoError(t, limited)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.NoFileExists(t, beside(path, "new"))
	b := begin(t, j, "b")
	require.Equal(t, map[string]string{"a": a.Key, "b": b.Key}, pending(t, reopen(t, j, path)))
}

// The file that is written anew is the one that was opened, and locked under any name.
func TestJournalBehindALink(t *testing.T) {
	link := inDir(t)
	path := inDir(t)
	require.NoError(t, os.Symlink(path, link))
	j := open(t, link)
	requireRefused(t, path, journal.ErrLocked)
	outgrow(t, j)
	require.NoError(t, j.Done(t.Context(), "large", nil))
	key := begin(t, j, "a").Key
	require.NoError(t, j.Close())
	require.Equal(t, map[string]string{"a": key}, pending(t, open(t, path)))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type(), "the link is still one")
}

// So it is where the program has changed its directory.
func TestJournalInARelativePlace(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	j := open(t, "journal")
	t.Chdir(t.TempDir())
	outgrow(t, j)
	require.NoError(t, j.Done(t.Context(), "large", nil))
	key := begin(t, j, "a").Key
	require.NoError(t, j.Close())
	require.Equal(t, map[string]string{"a": key}, pending(t, open(t, filepath.Join(dir, "journal"))))
}

// Many who open the same path at once, while the file is made and replaced, are writers one
// after the other, and none of them loses what another has noted.
func TestManyOpenersAreWritersInTurn(t *testing.T) {
	path := inDir(t)
	var writers atomic.Int32
	var mu sync.Mutex
	want := make(map[string]string)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; n < 4; {
				j, err := journal.Open(path)
				if errors.Is(err, journal.ErrLocked) {
					time.Sleep(time.Millisecond) // nobody tells when the lock is free
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				assert.EqualValues(t, 1, writers.Add(1), "two writers at once")
				name := fmt.Sprintf("order %d of %d", n, i)
				e, err := j.Begin(t.Context(), name, journal.Request{Body: make([]byte, n*20<<10)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				want[name] = e.Key
				mu.Unlock()
				writers.Add(-1)
				assert.NoError(t, j.Close())
				n++
			}
		})
	}
	wg.Wait()
	require.Equal(t, want, keysOf(t, open(t, path)))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
