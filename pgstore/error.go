package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/idempotency/store"
)

// The error codes of PostgreSQL that mean more than that a call has failed.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	diskFull             = "53100"
	limitExceeded        = "54000"
	divisionByZero       = "22012"
	invalidText          = "22P02"
	idleTooLong          = "25P03" // idle_in_transaction_session_timeout
	transactionTooLong   = "25P04" // transaction_timeout
)

// sentinels are the errors of the contract, which go to the caller as they are.
var sentinels = []error{
	store.ErrNotFound, store.ErrNotOwner, store.ErrChanged, store.ErrTooLarge,
	store.ErrFull, store.ErrCorrupt, store.ErrUnreadableHere,
}

// errRowLocked says that a transaction keeps the row locked.
var errRowLocked = errors.New("pgstore: a transaction keeps the record locked")

// tryInTurn is try for a call that holds a connection while a transaction keeps its row locked. Such
// calls leave connections for claims and renewals, or a few transactions that nobody ends would cost
// other runs their leases.
func (s *Store) tryInTurn(ctx context.Context, call string, f func() error) error {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return wrap(call, ctx.Err())
	}
	defer func() { <-s.turns }()
	return s.try(ctx, call, f)
}

// try runs one call of the store. It runs it again while a transaction keeps its row locked, and after a
// conflict that has rolled it back, which happens where the default isolation of the role is stricter
// than READ COMMITTED.
func (s *Store) try(ctx context.Context, call string, f func() error) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f()
		if !conflicts(err) && !errors.Is(err, errRowLocked) {
			return wrap(call, err)
		}
		select {
		case <-ctx.Done():
			return wrap(call, err)
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
	case diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case limitExceeded:
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	return fmt.Errorf("pgstore: %s: %w", call, err)
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
