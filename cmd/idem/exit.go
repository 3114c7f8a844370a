package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// The exit codes, by what a script can do about them.
const (
	exitOK          = iota
	exitError       // refused, or anything else
	exitUsage       // call it in another way
	exitNotFound    // there is no such record
	exitChanged     // look again before you decide
	exitUnhealthy   // the doctor has found a fault
	exitUnreachable // try again when the store is back
)

// A failure is an error as -o json shows it.
type failure struct {
	Type  string `json:"type"`
	Code  int    `json:"code" jsonschema:"the exit code"`
	Error string `json:"error"`
	Now   string `json:"now,omitempty" jsonschema:"what is there now, for --seen, if the record has changed meanwhile"`
}

// A coded error has its own exit code.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// usage returns an error about the arguments.
func usage(format string, args ...any) error { return &coded{exitUsage, fmt.Errorf(format, args...)} }

// A changed error says that a record is not what was seen, and what it is now.
type changed struct {
	seen store.Seen
	now  idempotency.RecordInfo
}

func (c *changed) Error() string {
	return fmt.Sprintf("the record has changed: you saw %s, and now it is %s. Nothing was changed by this. Look again: idem why %s",
		c.seen, c.now.Seen(), c.now.Record)
}

func (*changed) Unwrap() error { return store.ErrChanged }

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	own, isOwn := errors.AsType[*coded](err)
	switch {
	case err == nil:
		return exitOK
	case isOwn:
		return own.code
	case errors.Is(err, store.ErrNotFound):
		return exitNotFound
	case errors.Is(err, store.ErrChanged):
		return exitChanged
	case errors.Is(err, store.ErrBadCursor):
		return exitUsage
	case isAway(err):
		return exitUnreachable
	default:
		return exitError
	}
}

// isAway reports whether an error says that a store does not answer, or not yet.
func isAway(err error) bool {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok { // connection failure, no such database, too many connections, start or shutdown
		return strings.HasPrefix(refusal.Code, "08") || refusal.Code == "3D000" || refusal.Code == "53300" || strings.HasPrefix(refusal.Code, "57P0")
	}
	if refusal, ok := errors.AsType[redis.Error](err); ok {
		word, _, _ := strings.Cut(refusal.Error(), " ")
		return word == "LOADING" || word == "CLUSTERDOWN" || word == "MASTERDOWN" || strings.HasPrefix(refusal.Error(), "ERR DB index is out of range")
	}
	_, network := errors.AsType[net.Error](err)
	_, connect := errors.AsType[*pgconn.ConnectError](err)
	return network || connect || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) || errors.Is(err, fs.ErrNotExist)
}
