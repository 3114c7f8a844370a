package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"example.com/idempotency/store"
)

// sentinels are the errors of the contract, which go to the caller as they are.
var sentinels = []error{
	store.ErrNotFound, store.ErrNotOwner, store.ErrChanged, store.ErrTooLarge,
	store.ErrFull, store.ErrCorrupt, store.ErrUnreadableHere, store.ErrTransactionOpen,
}

// maxPause is the longest pause before the writer is asked for again. Processes do not queue for it:
// one that has it all the time leaves it free for some 50 µs between two transactions, and those who
// wait have to ask just then. With pauses of 20 ms that took up to 4 s, with 1 ms up to 1 s. To ask
// costs 5 µs.
const maxPause = time.Millisecond

// try runs one call of the store, again and again while another connection is writing.
func (s *Store) try(ctx context.Context, call string, f func() error) error {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, maxPause) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f()
		if c := code(err); c != sqlite3.SQLITE_BUSY && c != sqlite3.SQLITE_LOCKED {
			return wrap(call, err)
		}
		select {
		case <-ctx.Done():
			return wrap(call, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

// wrap says which call has failed, and translates what the contract has an error for.
func wrap(call string, err error) error {
	if err == nil || slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) }) {
		return err
	}
	switch code(err) {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	return fmt.Errorf("sqlitestore: %s: %w", call, err)
}

// code returns the primary code of an error of SQLite, or 0.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
