//go:build unix

package journal

import (
	"errors"
	"os"
	"syscall"
)

// This file has what all Unix systems do for the file of a journal.

// links returns how many names a file has.
func links(f *os.File) (uint64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink), nil //nolint:unconvert // its type differs from system to system
	}
	return 1, nil
}

// syncDir makes the names in a directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
