package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver
)

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
