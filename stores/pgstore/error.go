package pgstore

import (
	"context"
	"errors"
	"time"

	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// The error codes of PostgreSQL that mean more than that a call has failed.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	diskFull             = "53100"
	limitExceeded        = "54000"
	uniqueViolation      = "23505"
	noObject             = "42704"
	duplicateStatement   = "42P05"
	noStatement          = "26000"
	transactionFailed    = "25P02"
	idleTooLong          = "25P03" // idle_in_transaction_session_timeout
	transactionTooLong   = "25P04" // transaction_timeout
)

// errRowLocked says that a transaction keeps the row locked.
var errRowLocked = errors.New("pgstore: a transaction keeps the record locked")

// errPooled says that statements which the driver prepares by name meet those of other clients, or are missing.
var errPooled = errors.New("pgstore: a pooler gives each transaction another connection, and the driver prepares statements on one: " +
	"set default_query_exec_mode=exec in the connection string (pgx.QueryExecModeExec), or cache_describe, or simple_protocol")

// calls makes a call again while a transaction keeps its row locked, and after a conflict that has
// rolled it back, which happens where the default isolation of the role is stricter than READ COMMITTED.
var calls = sqlrecord.Caller{
	Package:  "pgstore",
	InTheWay: func(err error) bool { return conflicts(err) || errors.Is(err, errRowLocked) },
	Pause:    time.Millisecond,
	MaxPause: 50 * time.Millisecond,
	Meaning: func(err error) error {
		switch code(err) {
		case diskFull:
			return store.ErrFull
		case limitExceeded:
			return store.ErrTooLarge
		case duplicateStatement, noStatement:
			return errPooled
		}
		return nil
	},
}

// tryInTurn is Try for a call that holds a connection while a transaction keeps its row locked. Such
// calls leave connections for claims and renewals, or a few transactions that nobody ends would cost
// other runs their leases.
func (s *Store) tryInTurn(ctx context.Context, call string, f func() error) error {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return calls.Wrap(call, ctx.Err())
	}
	defer func() { <-s.turns }()
	return calls.Try(ctx, call, f)
}

// conflicts reports whether a transaction was rolled back because of another one.
func conflicts(err error) bool {
	c := code(err)
	return c == serializationFailure || c == deadlockDetected
}

// mayPass reports whether the reason for which a transaction was rolled back may be over when it is
// tried again: another transaction, a lost connection, an operator, a limit of time, a lack of
// resources, or a broken server.
func mayPass(err error) bool {
	c := code(err)
	if len(c) != 5 {
		return true // the server has not said anything
	}
	switch c[:2] {
	case "08", "40", "53", "55", "57", "58", "XX":
		return true
	}
	return c == idleTooLong || c == transactionTooLong
}

// code returns the code of an error of the server, or "". The drivers of PostgreSQL agree on how
// to tell it.
func code(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}
