package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// This file is about what a store tells an operator of its file and the disk.

// Health returns what is wrong with the file now: that its path names another one, which is [ErrMoved]; that this process may
// not write it; that the disk has less than 64 MiB left; and that more than 64 MiB of the log beside the file wait for a reader
// that does not end. The error err says that the file cannot be asked. Windows and a few others do not tell of the disk.
func (s *Store) Health(ctx context.Context) (faults []error, err error) {
	if err := s.inPlace(); err != nil {
		return []error{fmt.Errorf("sqlitestore: %w", err)}, nil
	}
	at := state{disk: diskOf(s.path)}
	if log, err := os.Stat(s.path + "-wal"); err == nil && log.Size() > muchLog {
		if at.waits, err = s.waitingLog(ctx); err != nil {
			return nil, calls.Wrap("Health", err)
		}
	}
	return at.faults(), nil
}

const (
	// littleRoom is so little that one busy moment may fill a disk: the log takes 4 MB before SQLite moves it.
	littleRoom = 64 << 20
	// muchLog is so much that SQLite should have moved it long ago.
	muchLog = 64 << 20
)

// A disk is what the system tells of the disk of a file, if it does.
type disk struct {
	known       bool
	size, free  int64
	mayNotWrite error // nil if the process may
}

// A state is what faults are found in. Waits is how many bytes of the log are not moved.
type state struct {
	disk
	waits int64
}

func (s *state) faults() (faults []error) {
	if s.known && s.mayNotWrite != nil {
		faults = append(faults, fmt.Errorf("sqlitestore: this process may not write the file, and no run begins: %w", s.mayNotWrite))
	}
	if s.known && s.free < littleRoom {
		faults = append(faults, fmt.Errorf("sqlitestore: %d bytes are left on the disk, and without any no run begins: make room", s.free))
	}
	if s.waits > muchLog {
		faults = append(faults, fmt.Errorf("sqlitestore: %d bytes of the log beside the file wait for a reader that does not end: "+
			"find the transaction that reads on and on, because the log grows", s.waits))
	}
	return faults
}

// waitingLog moves what can be moved of the log without waiting, as each writer does, and returns how many bytes cannot.
func (s *Store) waitingLog(ctx context.Context) (bytes int64, err error) {
	var busy, pages, moved, page int64
	err = errors.Join(
		s.write.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &pages, &moved),
		s.read.QueryRowContext(ctx, `PRAGMA page_size`).Scan(&page),
	)
	return max(0, pages-moved) * page, err
}

// Usage implements [store.Gauge]: the bytes of the file, what of them is free for new records, the log beside it, and how full
// the disk is.
func (s *Store) Usage(ctx context.Context) (all []store.Figure, err error) {
	err = s.try(ctx, "Usage", func() error {
		var page, pages, free int64
		if err := s.read.QueryRowContext(ctx, `SELECT page_size, page_count, freelist_count
			FROM pragma_page_size, pragma_page_count, pragma_freelist_count`).Scan(&page, &pages, &free); err != nil {
			return err
		}
		log := int64(0)
		if info, err := os.Stat(s.path + "-wal"); err == nil {
			log = info.Size()
		}
		all = []store.Figure{
			{Name: "file", Used: page * pages, Bytes: true},
			{Name: "free in the file", Used: page * free, Bytes: true},
			{Name: "log beside the file", Used: log, Bytes: true},
		}
		if d := diskOf(s.path); d.known {
			all = append(all, store.Figure{Name: "disk", Used: d.size - d.free, Limit: d.size, Bytes: true})
		}
		return nil
	})
	return all, err
}

// Forms implements [store.Gauge].
func (s *Store) Forms() []store.Form { return []store.Form{store.FormOf("row", sqlrecord.Form)} }
