package idempotency

// What the errors of a Redis client mean, and what of them may be shown.

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

// redisError turns an error of redisproto into one of the store.
func redisError(err error) error {
	if err == nil {
		return nil
	}
	var damage redisproto.Damage
	switch {
	case errors.As(err, &damage):
		return fmt.Errorf("%w: redis: %w", ErrCorrupt, err)
	case errors.Is(err, redisproto.ErrNewer):
		return fmt.Errorf("%w: redis: %w", ErrUnreadableHere, err)
	}
	return fmt.Errorf("idempotency: redis: %w", err)
}

// failure turns an error of the client into one of the store.
func (s *RedisStore) failure(ctx context.Context, err error) error {
	s.reloadAfter(ctx, err)
	err = discreet(err)
	var reply redis.Error
	if errors.As(err, &reply) {
		switch text := err.Error(); {
		case strings.Contains(text, "WRONGTYPE"):
			return redisError(redisproto.Damage("not a hash"))
		case refusesSize(text):
			return fmt.Errorf("%w: redis: %w", store.ErrTooLarge, err)
		case strings.Contains(text, "OOM command not allowed"):
			return fmt.Errorf("%w: redis: %w", ErrStoreFull, err)
		}
	}
	// A client that obeys the context reports a passed deadline as a network timeout.
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("idempotency: redis: %w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("idempotency: redis: %w", err)
}

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
		if !closed || !slices.Contains(redisCommands, strings.ToUpper(word)) {
			return &discreetError{text[:i] + "…", err}
		}
		i += len(word) + 1
	}
	return err
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// redisCommands are those that a store, its scripts and its client send.
var redisCommands = []string{
	"EVAL", "EVALSHA", "PTTL", "PEXPIRE", "HGET", "HMGET", "HGETALL", "HSET", "HSETNX", "HDEL", "DEL",
	"ZADD", "ZREM", "ZRANGE", "ZSCORE", "TIME",
	"PUBLISH", "SUBSCRIBE", "UNSUBSCRIBE", "MULTI", "EXEC", "WAIT", "INFO", "SCAN", "ASKING",
	"HELLO", "AUTH", "SELECT", "CLIENT", "PING", "COMMAND", "CLUSTER",
}
