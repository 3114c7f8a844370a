package sqlitestore

import (
	"errors"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// calls makes a call again while another connection is writing. Processes do not queue for the writer:
// one that has it all the time leaves it free for some 50 µs between two transactions, and those who
// wait have to ask just then. With pauses of at most 20 ms that took up to 4 s, with 1 ms up to 1 s. To ask
// costs 5 µs.
var calls = sqlrecord.Caller{
	Package: "sqlitestore",
	InTheWay: func(err error) bool {
		c := code(err)
		return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
	},
	Pause:    100 * time.Microsecond,
	MaxPause: time.Millisecond,
	Meaning: func(err error) error {
		switch code(err) {
		case sqlite3.SQLITE_FULL:
			return store.ErrFull
		case sqlite3.SQLITE_TOOBIG:
			return store.ErrTooLarge
		}
		return nil
	},
}

// code returns the primary code of an error of SQLite, or 0.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}
