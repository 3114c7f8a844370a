package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A coded error has its own exit code.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// usage returns an error about the arguments.
func usage(format string, args ...any) error {
	return &coded{inspect.ExitUsage, fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code.
func (c *coded) ExitCode() int { return c.code }

// An exiting error knows its exit code: ours, and those of a service.
type exiting interface {
	error
	ExitCode() int
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	own, isOwn := errors.AsType[exiting](err)
	_, settled := errors.AsType[*inspect.Settled](err)
	switch {
	case err == nil:
		return inspect.ExitOK
	case isOwn:
		return own.ExitCode()
	case settled:
		return inspect.ExitError
	case errors.Is(err, store.ErrNotFound):
		return inspect.ExitNotFound
	case errors.Is(err, store.ErrChanged):
		return inspect.ExitChanged
	case errors.Is(err, store.ErrBadCursor):
		return inspect.ExitUsage
	case isAway(err):
		return inspect.ExitUnreachable
	default:
		return inspect.ExitError
	}
}

// isAway reports whether an error says that a store does not answer, not yet, or not to this account.
func isAway(err error) bool {
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return inspect.Away(err) || connect && !inspect.Replied(err) || errors.Is(err, fs.ErrNotExist)
}
