package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
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

func (j *Journal) open(path string) (err error) {
	if j.path, err = placeOf(path); err != nil {
		return err
	}
	if lockBeside {
		if j.lock, err = os.OpenFile(j.path+".lock", os.O_RDWR|os.O_CREATE, mode); err != nil {
			return err
		}
		if err := lockFile(j.lock); err != nil {
			return err
		}
	}
	if err := j.openLocked(); err != nil {
		return err
	}
	info, err := j.file.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%w: it is not a regular file", ErrCorrupt)
	}
	j.removeLeftovers()
	if n, err := links(j.file); err != nil || n > 1 {
		return errors.Join(err, fmt.Errorf("%w: it has %d hard links", ErrMoved, n))
	}
	if err := j.load(); err != nil {
		return err
	}
	if err := protect(j.file, info.Mode()); err != nil {
		return err
	}
	// Also the file's name must survive.
	return errors.Join(j.file.Sync(), syncDir(filepath.Dir(j.path)))
}

// openLocked opens the file, or makes it, and locks it. Another process may put a new file in
// its place at any moment until it is locked.
func (j *Journal) openLocked() error {
	for range 100 {
		file, err := os.OpenFile(j.path, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			if err := j.create(); err != nil {
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
		if isAt(file, j.path) {
			j.file = file
			return nil
		}
		_ = release(file)
	}
	return fmt.Errorf("%w: it is replaced again and again", ErrMoved)
}

// create puts an empty journal at the path, whole or not at all, unless there is a file.
func (j *Journal) create() error {
	file, err := os.CreateTemp(filepath.Dir(j.path), filepath.Base(j.path)+".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := errors.Join(fill(file, chunk, nil), file.Close()); err != nil {
		return err
	}
	err = publish(file.Name(), j.path)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // somebody else was faster, and may have removed this one as a leftover
	}
	return err
}

// removeLeftovers removes what a process that was killed while it made a new file has left.
func (j *Journal) removeLeftovers() {
	entries, err := os.ReadDir(filepath.Dir(j.path))
	if err != nil {
		return // they are in nobody's way
	}
	for _, e := range entries {
		if ok, _ := filepath.Match(".new-[0-9]*", cutPrefix(e.Name(), filepath.Base(j.path))); ok || e.Name() == filepath.Base(j.path)+".new" {
			_ = os.Remove(filepath.Join(filepath.Dir(j.path), e.Name()))
		}
	}
}

func cutPrefix(s, prefix string) string {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return ""
	}
	return s[len(prefix):]
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
func (j *Journal) load() error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	c, err := read(data)
	if err != nil {
		return err
	}
	for _, l := range c.lines {
		j.apply(l, true)
	}
	j.size, j.used = c.size, c.used
	if len(c.mend) > 0 {
		_, err = j.file.WriteAt(c.mend, c.mendAt)
	}
	return err
}

// append makes a line durable, and then does what it says.
func (j *Journal) append(l line) error {
	text, err := encode(l)
	if err != nil {
		return err
	}
	if j.used+int64(len(text)) > j.size {
		if err := j.rewrite(int64(len(text))); err != nil {
			return err
		}
	}
	if _, err := j.file.WriteAt(text, j.used); err != nil {
		// Half a line must not stand in front of the next one.
		if _, undoErr := j.file.WriteAt(make([]byte, len(text)), j.used); undoErr != nil {
			return j.breakOff(undoErr)
		}
		return fmt.Errorf("journal: writing: %w", err)
	}
	if err := j.file.Sync(); err != nil {
		return j.breakOff(err) // nobody can tell what a failed sync has written, nor can another one
	}
	if !isAt(j.file, j.path) {
		return j.breakOff(ErrMoved) // the next process would not find it
	}
	// The caller may change its bytes later.
	l.Body, l.Result = slices.Clone(l.Body), slices.Clone(l.Result)
	j.apply(l, false)
	j.used += int64(len(text))
	return nil
}

func (j *Journal) breakOff(err error) error {
	j.broken = fmt.Errorf("%w: %w", ErrBroken, err)
	return j.broken
}

// rewrite puts a new file in the place of the old one, with all that has to be known and room
// for more. If that fails, the old file is as it was, and the caller is told: its line does
// not fit.
func (j *Journal) rewrite(room int64) error {
	if !isAt(j.file, j.path) {
		return j.breakOff(ErrMoved)
	}
	if n, err := links(j.file); err != nil || n > 1 {
		return errors.Join(err, fmt.Errorf("%w: it has %d hard links", ErrMoved, n))
	}
	now := time.Now()
	var lines []byte
	for _, e := range j.ordered() {
		if j.forgotten(e, now) {
			delete(j.entries, e.Name)
			continue
		}
		text, err := encode(line{
			Name: e.Name, Key: e.Key, Since: e.Since, Method: e.Request.Method, URL: e.Request.URL,
			Type: e.Request.ContentType, Body: e.Request.Body, Expires: e.Expires, Finished: e.Finished, Result: e.Result,
		})
		if err != nil {
			return err
		}
		lines = append(lines, text...)
	}
	size := (2*(int64(len(lines))+room) + 2*chunk - 1) / chunk * chunk
	path := j.path + ".new"
	_ = os.Remove(path) // of a process that was killed
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		if err = fill(file, size, lines); err == nil {
			file, err = j.replace(file, path)
		}
		if err != nil {
			_ = file.Close()
			_ = os.Remove(path) // the disk may be full
		}
	}
	if err != nil {
		if j.broken != nil {
			return j.broken
		}
		return fmt.Errorf("journal: writing the file anew: %w", err)
	}
	j.file, j.size = file, size
	j.used = int64(len(headerOf(size)) + len(lines))
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		return j.breakOff(err) // the next start may find the old file
	}
	return nil
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
