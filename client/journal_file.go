package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Errors of a [FileJournal].
var (
	// ErrJournalLocked says that another process has the journal open.
	ErrJournalLocked = errors.New("client: journal is in use by another process")

	// ErrJournalCorrupt says that the file of a journal is damaged otherwise than at its
	// end, where a process that died while it wrote leaves half a line, or is not a
	// journal. It is not opened: what is missing might be a key that was sent.
	ErrJournalCorrupt = errors.New("client: journal is corrupt")

	// ErrJournalBroken says that an earlier write has failed in such a way that it is not
	// known what the file contains, or that the journal was closed. Open it anew.
	ErrJournalBroken = errors.New("client: journal is closed or broken")
)

// compactFrom is the size from which a file with more that is done than pending is
// written anew.
const compactFrom = 1 << 20

// A FileJournal is a [Journal] in a file of one process. What a method has acknowledged
// survives the death of the process and, as far as the disk keeps what it was told to
// keep, that of the machine. Its methods may be called by several goroutines.
type FileJournal struct {
	path string
	lock *os.File

	mu      sync.Mutex
	file    *os.File
	size    int64 // of the file, all of which is valid
	live    int64 // bytes of it that are of pending entries
	entries map[string]journalEntry
	broken  error
}

type journalEntry struct {
	Entry
	order int64 // rises from entry to entry
	size  int64
}

var _ Journal = (*FileJournal)(nil)

// OpenJournal opens the journal in a file, or makes a new one that only its owner may
// read. A second file next to it, with ".lock" behind its name, is locked until the journal
// is closed or its process has ended; [ErrJournalLocked] says that another process has it.
// Where path is a link, both are in the place that it leads to. What was being written at
// the end of the file when the process died, and was never acknowledged, is removed. Entries
// that are pending are marked as resumed.
//
// Systems without flock (Windows, Solaris) get errors.ErrUnsupported.
func OpenJournal(path string) (*FileJournal, error) {
	path, err := placeOf(path)
	if err != nil {
		return nil, fmt.Errorf("client: opening journal: %w", err)
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("client: opening journal: %w", err)
	}
	j := &FileJournal{path: path, lock: lock, entries: make(map[string]journalEntry)}
	if err := j.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("client: opening journal: %w", err), j.Close())
	}
	return j, nil
}

const journalMode = 0o600

// placeOf returns where a file is, which is made if there is none: what is written anew
// must not take the place of a link to it, or be in another directory than the program is
// in by then.
func placeOf(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, journalMode)
	if err != nil {
		return "", err
	}
	_ = file.Close()
	return filepath.EvalSymlinks(path)
}

func (j *FileJournal) open() (err error) {
	j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE, journalMode)
	if err != nil {
		return err
	}
	if err := j.load(); err != nil {
		return err
	}
	// Also the file's name must survive.
	return errors.Join(j.file.Sync(), syncDir(filepath.Dir(j.path)))
}

// load reads the file, and cuts off the line that was being written last.
func (j *FileJournal) load() error {
	data, err := os.ReadFile(j.path)
	if err != nil {
		return err
	}
	for rest := data; len(rest) > 0; {
		line, size := cutLine(rest)
		l, err := decodeLine(line)
		last := size == len(rest)
		switch {
		case err == nil:
			j.apply(l, int64(size), true)
		case last && errors.Is(err, errBadLine) && torn(line):
			return j.file.Truncate(j.size)
		default:
			return fmt.Errorf("%w: at byte %d: %w", ErrJournalCorrupt, j.size, err)
		}
		j.size += int64(size)
		rest = rest[size:]
	}
	return nil
}

// apply does what a line says.
func (j *FileJournal) apply(l journalLine, size int64, resumed bool) {
	old, ok := j.entries[l.Name]
	if ok {
		j.live -= old.size
		delete(j.entries, l.Name)
	}
	if l.Done {
		return
	}
	j.live += size
	j.entries[l.Name] = journalEntry{
		Entry: Entry{Name: l.Name, Key: l.Key, Payload: l.Payload, Since: l.Since, Resumed: resumed},
		order: j.size, size: size,
	}
}

// Begin implements [Journal].
func (j *FileJournal) Begin(_ context.Context, name string, payload []byte) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e, ok := j.entries[name]; ok {
		e.Resumed = true
		return e.copy(), j.broken
	}
	if name == "" || !utf8.ValidString(name) {
		return Entry{}, fmt.Errorf("client: %q is no name for an intent: it is empty or not UTF-8", name)
	}
	// Of the wall clock: the monotonic one stands still while the machine is suspended.
	l := journalLine{Name: name, Key: NewKey(), Payload: payload, Since: time.Now().Round(0)}
	if err := j.append(l); err != nil {
		return Entry{}, err
	}
	return j.entries[name].copy(), nil
}

// Done implements [Journal].
func (j *FileJournal) Done(_ context.Context, name string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.entries[name]; !ok {
		return j.broken
	}
	if err := j.append(journalLine{Name: name, Done: true}); err != nil {
		return err
	}
	if j.size >= compactFrom && j.live < j.size/2 {
		return j.compact()
	}
	return nil
}

// Pending implements [Journal].
func (j *FileJournal) Pending(context.Context) ([]Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	pending := make([]Entry, 0, len(j.entries))
	for _, e := range j.ordered() {
		e.Resumed = true
		pending = append(pending, e.copy())
	}
	return pending, j.broken
}

// Close gives the journal free for other processes. Entries stay pending.
func (j *FileJournal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lock == nil {
		return nil
	}
	var errs []error
	if j.file != nil {
		errs = append(errs, j.file.Close())
	}
	errs = append(errs, unlockFile(j.lock))
	j.lock, j.broken = nil, ErrJournalBroken
	return errors.Join(errs...)
}

// copy hands out an entry whose payload the caller may change.
func (e journalEntry) copy() Entry {
	e.Payload = slices.Clone(e.Payload)
	return e.Entry
}

func (j *FileJournal) ordered() []journalEntry {
	entries := make([]journalEntry, 0, len(j.entries))
	for _, e := range j.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b journalEntry) int { return cmp.Compare(a.order, b.order) })
	return entries
}

// append makes a line durable, and then does what it says.
func (j *FileJournal) append(l journalLine) error {
	if j.broken != nil {
		return j.broken
	}
	line, err := encodeLine(l)
	if err != nil {
		return err
	}
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		// Half a line must not stand in front of the next one.
		if truncateErr := j.file.Truncate(j.size); truncateErr != nil {
			return j.breakOff(truncateErr)
		}
		return fmt.Errorf("client: writing journal: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return j.breakOff(err) // what a failed sync has written cannot be told, also not by another one
	}
	// What is in memory must not be what the caller can change.
	l.Payload = slices.Clone(l.Payload)
	j.apply(l, int64(len(line)), false)
	j.size += int64(len(line))
	return nil
}

func (j *FileJournal) breakOff(err error) error {
	j.broken = fmt.Errorf("%w: %w", ErrJournalBroken, err)
	return j.broken
}

// compact writes the pending entries into a new file, which takes the place of the old
// one at once or not at all.
func (j *FileJournal) compact() error {
	file, size, err := j.rewrite(j.path + ".new")
	if err != nil {
		return nil //nolint:nilerr // the old file is whole, and the next Done tries again
	}
	_ = j.file.Close()
	j.file, j.size, j.live = file, size, size
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		return j.breakOff(err) // the next start may find the old file
	}
	return nil
}

func (j *FileJournal) rewrite(path string) (_ *os.File, size int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, journalMode)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(path) // the disk may be full
		}
	}()
	moved := make(map[string]journalEntry, len(j.entries))
	for _, e := range j.ordered() {
		line, err := encodeLine(journalLine{Name: e.Name, Key: e.Key, Payload: e.Payload, Since: e.Since})
		if err != nil {
			return nil, 0, err
		}
		if _, err := file.WriteAt(line, size); err != nil {
			return nil, 0, err
		}
		e.order, e.size = size, int64(len(line))
		moved[e.Name] = e
		size += e.size
	}
	if err := file.Sync(); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(path, j.path); err != nil {
		return nil, 0, err
	}
	j.entries = moved
	return file, size, nil
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
