package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"example.com/idempotency/client"
	"example.com/idempotency/client/internal/truncate"
)

// This file has the journal as its callers see it. How it is stored is in file.go.

// A Journal keeps intents in a file of one process. Its methods may be called by several
// goroutines.
type Journal struct {
	retention time.Duration

	mu      sync.Mutex
	file    file
	entries map[string]*entry
	next    int64 // order of the next entry
}

// An entry is what all lines of a name say together.
type entry struct {
	line
	order int64 // rises from entry to entry
}

// told returns the entry for a caller, who may change its bytes.
func (e *entry) told(resumed bool) Entry {
	return Entry{
		Name: e.Name, Key: e.Key, Since: e.Since, Expires: e.Expires, Resumed: resumed && !e.done(),
		Request:  Request{Method: e.Method, URL: e.URL, ContentType: e.Type, Body: slices.Clone(e.Body)},
		Finished: e.Finished, Result: slices.Clone(e.Result),
	}
}

func (e *entry) done() bool { return !e.Finished.IsZero() }

// An Option changes a setting of a [Journal]; see [Open].
type Option func(*Journal) error

const defaultRetention = 30 * 24 * time.Hour

// WithRetention sets for how long a finished name is known. After that, beginning it again
// makes a new key, and the intent is carried out again. The default is 30 days. It must be
// positive.
func WithRetention(d time.Duration) Option {
	return func(j *Journal) error {
		if d <= 0 {
			return fmt.Errorf("journal: WithRetention: %v is not positive", d)
		}
		j.retention = d
		return nil
	}
}

// Open opens the journal in a file, or makes a new one. Only the owner of the file may read
// and write it: other permissions are taken away. The file is locked until the journal is
// closed or its process has ended; [ErrLocked] says that somebody else has it. Where path is
// a symbolic link, the file is the one that it leads to; a file with a second hard link is
// refused with [ErrMoved].
//
// Beside the file, a journal makes files of its own, such as .intents.journal-new for intents. Their
// names are refused, and no file of another name is touched. The line that was being written when the last process died, and that was never
// acknowledged, is removed. Entries that are pending are marked as resumed.
//
// On systems where Go's standard library has no file locks (AIX, Plan 9, Solaris,
// WebAssembly) the error is errors.ErrUnsupported.
func Open(path string, opts ...Option) (*Journal, error) {
	j := &Journal{retention: defaultRetention, entries: make(map[string]*entry)}
	var errs []error
	for _, o := range opts {
		if o != nil {
			errs = append(errs, o(j))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	lines, err := j.file.open(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal: opening %s: %w", path, err), j.Close())
	}
	for _, l := range lines {
		j.apply(l)
	}
	return j, nil
}

// Begin notes an intent with a new key. When it returns, the entry is durable; before,
// nothing may be sent. An intent that is pending or finished is returned as it was noted
// then, with its key and request, and a pending one is marked as resumed.
func (j *Journal) Begin(_ context.Context, name string, r Request) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.usable(); err != nil {
		return Entry{}, err
	}
	if e, ok := j.entries[name]; ok && !j.forgotten(e, time.Now()) {
		return e.told(true), nil
	}
	if name == "" || !utf8.ValidString(name) || !utf8.ValidString(r.Method+r.URL+r.ContentType) {
		return Entry{}, fmt.Errorf("journal: %s cannot be noted: its name is empty, or a text in it is not UTF-8", truncate.Text(strconv.Quote(name)))
	}
	// The wall clock counts: the monotonic one stands still while the machine is suspended.
	l := line{Name: name, Key: client.NewKey(), Since: time.Now().Round(0), Method: r.Method, URL: r.URL, Type: r.ContentType, Body: r.Body}
	if err := j.append(l); err != nil {
		return Entry{}, err
	}
	return j.entries[name].told(false), nil
}

// Done finishes an intent: its answer is kept, or not needed. The journal notes the result,
// and Begin returns it as long as the name is known. Finishing an intent that is finished or
// unknown does nothing.
func (j *Journal) Done(_ context.Context, name string, result []byte) error {
	_, err := j.finish(name, result)
	return err
}

func (j *Journal) finish(name string, result []byte) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.usable(); err != nil {
		return Entry{}, err
	}
	e, ok := j.entries[name]
	if !ok {
		return Entry{}, nil
	}
	if !e.done() {
		if err := j.append(line{Name: name, Finished: time.Now().Round(0), Result: result}); err != nil {
			return e.told(true), err
		}
	}
	return e.told(true), nil
}

// learn notes when the server forgets the key of an intent that stays pending, if it has said so:
// the next process must not send the key after that. It returns why the intent stays pending, and
// what went wrong besides.
func (j *Journal) learn(e *Entry, expires time.Time, why error) error {
	expires = expires.Round(0)
	if expires.IsZero() || expires.Equal(e.Expires) {
		return why
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	known, ok := j.entries[e.Name]
	if !ok || known.Key != e.Key || known.done() {
		return why
	}
	err := j.file.usable()
	if err == nil {
		err = j.append(line{Name: e.Name, Expires: expires})
	}
	if err != nil {
		return errors.Join(why, err)
	}
	e.Expires = expires
	return why
}

// Pending returns the entries that are not finished, the oldest first.
func (j *Journal) Pending(context.Context) ([]Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.usable(); err != nil {
		return nil, err
	}
	var pending []Entry
	for _, e := range j.ordered() {
		if !e.done() {
			pending = append(pending, e.told(true))
		}
	}
	return pending, nil
}

// Close releases the file for other processes. Pending entries stay pending.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.close()
}

// forgotten reports whether a finished entry has been known for long enough.
func (j *Journal) forgotten(e *entry, now time.Time) bool {
	return e.done() && now.Sub(e.Finished) >= j.retention
}

func (j *Journal) ordered() []*entry {
	entries := make([]*entry, 0, len(j.entries))
	for _, e := range j.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b *entry) int { return cmp.Compare(a.order, b.order) })
	return entries
}

// known returns the lines of a new file: all that has to be known. What need not is forgotten.
func (j *Journal) known() []line {
	now := time.Now()
	var lines []line
	for _, e := range j.ordered() {
		if j.forgotten(e, now) {
			delete(j.entries, e.Name)
			continue
		}
		lines = append(lines, e.line)
	}
	return lines
}

// append makes a line durable, and then does what it says.
func (j *Journal) append(l line) error {
	if err := j.file.append(l, j.known); err != nil {
		return err
	}
	// The caller may change its bytes later.
	l.Body, l.Result = slices.Clone(l.Body), slices.Clone(l.Result)
	j.apply(l)
	return nil
}

// apply does what a line says. Its bytes must be nobody else's.
func (j *Journal) apply(l line) {
	if l.Key != "" { // the intent; in a file that was written anew, finished ones have it too
		j.entries[l.Name] = &entry{line: l, order: j.next}
		j.next++
		return
	}
	e, ok := j.entries[l.Name]
	if ok && !l.Expires.IsZero() {
		e.Expires = l.Expires
	}
	if ok && !l.Finished.IsZero() {
		e.Finished, e.Result, e.Body = l.Finished, l.Result, nil
	}
}
