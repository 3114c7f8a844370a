package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// This file opens, reads and writes the file of a journal. The file has its final length from
// the beginning, with zeros behind the last line. A cut is then noticed, and a full disk is
// met when the file is made. When a line does not fit, a new file takes the place of the old
// one, at once or not at all.

const (
	mode  = 0o600
	chunk = 64 << 10 // the length of a file is a multiple of it
)

// placeOf returns where the file is, or would be. It follows links, because a new file must
// not take the place of a link, and does not depend on the directory of the program.
func placeOf(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	place, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return place, err
	}
	if target, err := os.Readlink(path); err == nil { // it leads to nothing yet
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		return placeOf(target)
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// ownNames are the names that beside makes.
var ownNames = regexp.MustCompile(`(?i)^\..+\.journal-(lock|new(-[0-9]+)?)$`)

// beside returns the name of a file that a journal makes for itself. No journal has such a name,
// because Open refuses it: what a journal removes is never another one.
func beside(path, what string) string {
	dir, base := filepath.Split(path)
	return filepath.Join(dir, "."+base+".journal-"+what)
}

// A file is the open and locked file of a journal.
type file struct {
	path   string
	lock   *os.File // beside the file, where the file itself cannot be locked
	data   *os.File
	size   int64 // of the file
	used   int64 // bytes of it that are lines
	broken error // why nothing can be said any more
}

// open opens the file, or makes it, and returns its lines without the one that was being written
// last. The file must be closed also after an error.
func (f *file) open(path string) (lines []line, err error) {
	if f.path, err = placeOf(path); err != nil {
		return nil, err
	}
	if ownNames.MatchString(filepath.Base(path)) || ownNames.MatchString(filepath.Base(f.path)) {
		return nil, fmt.Errorf("journal: %s is a name that journals use for files of their own", f.path)
	}
	if lockBeside {
		if f.lock, err = os.OpenFile(beside(f.path, "lock"), os.O_RDWR|os.O_CREATE, mode); err != nil {
			return nil, err
		}
		if err := lockFile(f.lock); err != nil {
			return nil, err
		}
	}
	if err := f.openLocked(); err != nil {
		return nil, err
	}
	info, err := f.data.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is not a regular file", ErrCorrupt)
	}
	removeLeftovers(f.path)
	if err := f.isOnly(); err != nil {
		return nil, err
	}
	if lines, err = f.load(); err != nil {
		return nil, err
	}
	if m := info.Mode().Perm(); m != m&mode {
		if err := f.data.Chmod(m & mode); err != nil {
			return nil, err
		}
	}
	// Also the file's name must survive.
	return lines, errors.Join(f.data.Sync(), syncDir(filepath.Dir(f.path)))
}

// close releases the file for other processes.
func (f *file) close() error {
	var errs []error
	for _, open := range []*os.File{f.data, f.lock} {
		if open != nil {
			errs = append(errs, release(open))
		}
	}
	f.data, f.lock, f.broken = nil, nil, ErrBroken
	return errors.Join(errs...)
}

// usable reports why nothing can be said. What the journal tells about a file that has been
// moved away would be unknown to the next process.
func (f *file) usable() error {
	if f.broken == nil && !isAt(f.data, f.path) {
		return f.breakOff(ErrMoved)
	}
	return f.broken
}

func (f *file) breakOff(err error) error {
	f.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	return f.broken
}

// isOnly reports whether the file has one name.
func (f *file) isOnly() error {
	if n, err := links(f.data); err != nil || n > 1 {
		return errors.Join(err, fmt.Errorf("%w: it has %d hard links", ErrMoved, n))
	}
	return nil
}

// openLocked opens the file, or makes it, and locks it. Another process may put a new file in
// its place at any moment until it is locked.
func (f *file) openLocked() error {
	for range 100 {
		file, err := os.OpenFile(f.path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if err := create(f.path); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if !lockBeside {
			if err := lockFile(file); err != nil {
				return errors.Join(err, file.Close())
			}
		}
		if isAt(file, f.path) {
			f.data = file
			return nil
		}
		_ = release(file)
	}
	return fmt.Errorf("%w: it is replaced again and again", ErrMoved)
}

// create puts an empty journal at the path, whole or not at all, unless there is a file.
func create(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(beside(path, "new-*")))
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := errors.Join(fill(file, chunk, nil), file.Close()); err != nil {
		return err
	}
	err = publish(file.Name(), path)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else was faster, and may have removed this one as a leftover
	}
	return err
}

// removeLeftovers removes what a process that was killed while it made a new file has left.
func removeLeftovers(path string) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return // they are in nobody's way
	}
	prefix := filepath.Base(beside(path, "new"))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && ownNames.MatchString(e.Name()) {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// isAt reports whether an open file is the one at a path.
func isAt(file *os.File, path string) bool {
	at, err := os.Lstat(path)
	if err != nil {
		return false
	}
	info, err := file.Stat()
	return err == nil && os.SameFile(at, info)
}

// load reads the file, and removes the line that was being written last.
func (f *file) load() ([]line, error) {
	data, err := io.ReadAll(f.data)
	if err != nil {
		return nil, err
	}
	c, err := read(data)
	if err != nil {
		return nil, err
	}
	f.size, f.used = c.size, c.used
	if len(c.mend) > 0 {
		_, err = f.data.WriteAt(c.mend, c.mendAt)
	}
	return c.lines, err
}

// append makes a line durable. If it does not fit, the file is written anew with the known
// lines, which say all that those before have said.
func (f *file) append(l line, known func() []line) error {
	text, err := encode(l)
	if err != nil {
		return err
	}
	if f.used+int64(len(text)) > f.size {
		if err := f.rewrite(known(), int64(len(text))); err != nil {
			return err
		}
	}
	if _, err := f.data.WriteAt(text, f.used); err != nil {
		// Half a line must not stand in front of the next one.
		if _, undoErr := f.data.WriteAt(make([]byte, len(text)), f.used); undoErr != nil {
			return f.breakOff(undoErr)
		}
		return fmt.Errorf("journal: writing: %w", err)
	}
	if err := f.data.Sync(); err != nil {
		return f.breakOff(err) // nobody can tell what a failed sync has written, nor can another one
	}
	if !isAt(f.data, f.path) {
		return f.breakOff(ErrMoved) // the next process would not find it
	}
	f.used += int64(len(text))
	return nil
}

// rewrite puts a new file with lines, and room for more, in the place of the old one. If that
// fails, the old file is as it was, and the caller is told: its line does not fit.
func (f *file) rewrite(known []line, room int64) error {
	if err := f.isOnly(); err != nil {
		return err
	}
	var lines []byte
	for _, l := range known {
		text, err := encode(l)
		if err != nil {
			return err
		}
		lines = append(lines, text...)
	}
	size := (2*(int64(len(lines))+room) + 2*chunk - 1) / chunk * chunk
	if err := f.replace(size, lines); err != nil {
		if f.data == nil {
			return f.breakOff(err)
		}
		return fmt.Errorf("journal: writing the file anew: %w", err)
	}
	f.size, f.used = size, int64(len(headerOf(size))+len(lines))
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return f.breakOff(err) // the next start may find the old file
	}
	return nil
}

// replace puts a new file in the place of the old one, which other names may still lead to.
func (f *file) replace(size int64, lines []byte) error {
	path := beside(f.path, "new")
	_ = os.Remove(path) // of a process that was killed
	next, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	old, now := f.data, f.data
	if err = fill(next, size, lines); err == nil {
		now, err = replace(old, next, path, f.path)
	}
	if err != nil {
		_ = next.Close()
		_ = os.Remove(path) // the disk may be full
	} else {
		retire(old)
		_ = release(old)
	}
	f.data = now
	return err
}

// headerOf returns the first line of a file.
func headerOf(size int64) []byte {
	text, err := encode(header{Version: version, Size: size})
	if err != nil {
		panic(err) // two integers can be encoded
	}
	return text
}

// fill writes a whole file, with its zeros, and makes it durable.
func fill(file *os.File, size int64, lines []byte) error {
	data := append(headerOf(size), lines...)
	if _, err := file.WriteAt(data, 0); err != nil {
		return err
	}
	zeros := make([]byte, chunk)
	for at := int64(len(data)); at < size; {
		n, err := file.WriteAt(zeros[:min(chunk, size-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return file.Sync()
}

// retire marks a file that another one has replaced, for those who open it by another name.
func retire(file *os.File) {
	if text, err := encode(header{Version: version, Replaced: true}); err == nil {
		_, _ = file.WriteAt(text, 0)
	}
}
