package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver
)

// ErrMoved says that the path of a store does not name the file that the store has open: somebody has moved or
// deleted the file, or has put another one in its place, such as a backup. Every call returns it, and changes
// nothing that others can find. A guard answers 503 store-unavailable, and nothing runs. Rows of a run that
// is under way are rolled back. The store is of use again when the path names its file again. Else restart the program;
// docs/how-to/sqlite.md says how to restore a backup.
var ErrMoved = errors.New("the path does not name the file that is open: it was moved, deleted or replaced")

// identity returns which file path names.
func identity(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if err == nil {
		os.SameFile(info, info) // Windows looks at the file only when somebody asks
	}
	return info, err
}

// inPlace returns an error unless the path names the file that is open.
func (s *Store) inPlace() error {
	info, err := os.Stat(s.path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMoved, err)
	case !os.SameFile(info, s.file):
		return fmt.Errorf("%w: %s", ErrMoved, s.path)
	}
	return nil
}

// obstacle says what keeps Open from a file that others have open.
func obstacle(path string) string {
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return "the file is empty, and another process has it open: was it truncated?"
	}
	return "another process has the file in a transaction that does not end: is the process stopped?"
}

// driverName is that of the driver. Tests put another one before it.
var driverName = "sqlite"

// uri names the file at path to the driver, and to SQLite, which takes a plus for a plus.
func uri(path string, query url.Values) string {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	return file.String() + "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
}

// create makes the file at path unless it is there. Nobody but its owner may read it: answers are in
// it. SQLite gives the mode of the file to its WAL and to the index of that, and takes the mode of a
// new file from another one. It must make the file itself: whoever closes a file takes away all locks
// that other stores of the process have on it.
func create(ctx context.Context, path string) (err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // if there is something wrong with it, SQLite says so
	}
	model, err := os.CreateTemp(filepath.Dir(path), ".sqlitestore-*") // its mode is 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close(), os.Remove(model.Name())) }()
	db, err := sql.Open(driverName, uri(path, url.Values{"modeof": {model.Name()}}))
	if err != nil {
		return err
	}
	return errors.Join(db.PingContext(ctx), db.Close())
}
