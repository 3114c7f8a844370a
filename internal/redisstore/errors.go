package redisstore

// What the errors of a client mean, and what of them may be shown.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// errTooFewReplicas is returned for a durable call that not enough replicas have confirmed.
// What it wrote stays on the master.
var errTooFewReplicas = errors.New("idempotency: redis: too few replicas have confirmed the record")

var errNoResult = errors.New("the script has returned nothing that it can return")

// resultError returns the error that the result of a script stands for.
func resultError(n int64, refused error) error {
	switch n {
	case redisproto.Done, redisproto.Entered:
		return nil
	case redisproto.Absent:
		return store.ErrNotFound
	case redisproto.Damaged:
		return redisproto.Damage("impossible header")
	case redisproto.Newer:
		return redisproto.ErrNewer
	case redisproto.Refused:
		return refused
	default: // a hook has kept the error of the call to itself, or there is another script
		return wrap(errNoResult)
	}
}

// wrap says of an error where it comes from, unless it is one of a store.
func wrap(err error) error {
	if err == nil || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnreadableHere) || errors.Is(err, store.ErrNotFound) {
		return err
	}
	return fmt.Errorf("idempotency: redis: %w", err)
}

// isReply reports whether an error is what a server has replied.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// failure turns an error of the client into one of a store.
func failure(ctx context.Context, err error) error {
	err = discreet(err)
	if isReply(err) {
		switch text := err.Error(); {
		case notHash(err):
			return redisproto.Damage("not a hash")
		case refusesSize(text):
			return fmt.Errorf("%w: redis: %w", store.ErrTooLarge, err)
		case strings.Contains(text, "OOM command not allowed"):
			return fmt.Errorf("%w: redis: %w", store.ErrFull, err)
		}
	}
	// A client that obeys the context reports a passed deadline as a network timeout.
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("idempotency: redis: %w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("idempotency: redis: %w", err)
}

// notHash reports whether a server says that a record is no hash. Before Redis 7.0, the error of a script
// has other words first.
func notHash(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// refusesSize reports whether a server says that an argument is longer than its
// proto-max-bulk-len. It closes the connection after that, so its reply may be lost.
func refusesSize(reply string) bool {
	return strings.HasPrefix(reply, "ERR Protocol error: invalid bulk length") ||
		strings.HasPrefix(reply, "ERR string exceeds maximum allowed size")
}

// A discreetError shows the beginning of an error's text, and is the error in all else.
type discreetError struct {
	text string
	err  error
}

func (e *discreetError) Error() string { return e.text }

func (e *discreetError) Unwrap() error { return e.err }

// discreet returns an error whose text ends where it begins to quote something. Servers quote
// the arguments of a command that they do not know, and the client quotes replies that it does
// not understand: answers and steps, which must not get into logs. The names of commands may be
// shown, because a missing permission is found by them.
func discreet(err error) error {
	text := err.Error()
	for i := 0; i < len(text); i++ {
		if !strings.ContainsRune("'`\"", rune(text[i])) || i > 0 && isLetter(text[i-1]) { // as in "can't"
			continue
		}
		word, _, closed := strings.Cut(text[i+1:], text[i:i+1])
		if !closed || !slices.Contains(commands, strings.ToUpper(word)) {
			return &discreetError{text[:i] + "…", err}
		}
		i += len(word) + 1
	}
	return err
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// commands are those that a store, its scripts and its client send.
var commands = []string{
	"EVAL", "EVALSHA", "PTTL", "PEXPIRE", "HGET", "HMGET", "HGETALL", "HSET", "HSETNX", "HDEL", "DEL",
	"ZADD", "ZREM", "ZRANGE", "ZSCORE", "ZSCAN", "TIME",
	"PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "MULTI", "EXEC", "WAIT", "INFO", "SCAN", "ASKING",
	"HELLO", "AUTH", "SELECT", "CLIENT", "PING", "COMMAND", "CLUSTER",
}

// refusedClaim reports whether an error says that a claim was not granted.
func refusedClaim(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnreadableHere)
}
