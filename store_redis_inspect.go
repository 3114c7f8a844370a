package idempotency

import (
	"context"
	"fmt"
	"strings"
	"time"
)

var _ Inspector = (*RedisStore)(nil)

// Get implements [Inspector].
func (s *RedisStore) Get(ctx context.Context, key string) (Record, error) {
	ttl, fields, err := s.fields(ctx, s.prefix+key)
	if err != nil {
		return Record{}, err
	}
	if len(fields) == 0 {
		return Record{}, ErrNotFound
	}
	if ttl < 0 {
		return Record{}, fmt.Errorf("%w: redis: it does not expire", ErrCorrupt)
	}
	return parseRedisRecord(ttl, fields)
}

// List implements [Inspector]. It leaves out answers and steps. In a Cluster it goes
// through the masters one after another.
func (s *RedisStore) List(ctx context.Context, visit func(key string, r Record) bool) error {
	return s.scan(ctx, redisLiteral(s.prefix)+"*", func(name string, ttl time.Duration, header, origin string) bool {
		h, err := parseRedisHeader(header)
		if err != nil || ttl < 0 {
			return true
		}
		r, err := h.record(ttl, origin)
		if err != nil {
			return true
		}
		h.holdLapsed(&r)
		return visit(strings.TrimPrefix(name, s.prefix), r)
	})
}

// redisLiteral quotes a string for use in a pattern.
func redisLiteral(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// Resolve implements [Inspector].
func (s *RedisStore) Resolve(ctx context.Context, key string, attempt int, c *Completion) error {
	args := []any{attempt, int(StateReleased), s.channel, ""}
	if c != nil {
		ttl, err := redisTTL(c.TTL)
		if err != nil {
			return err
		}
		args = []any{attempt, int(StateCompleted), s.channel, ttl.Milliseconds(), redisLifetime(ttl), c.Answer}
	}
	durable := c != nil // a failover that forgets a release leaves the key held
	return attemptResult(s.number(ctx, resolveScript, durable, key, args...))
}

// Forget implements [Inspector].
func (s *RedisStore) Forget(ctx context.Context, key string, attempt int) error {
	return attemptResult(s.number(ctx, forgetScript, false, key, attempt))
}

// attemptResult turns what a script returned to an operator into an error.
func attemptResult(n int64, confirmed bool, err error) error {
	switch {
	case err != nil:
		return err
	case n == redisAbsent:
		return ErrNotFound
	case n == redisUnknown:
		return fmt.Errorf("%w: redis: impossible header", ErrCorrupt)
	case n == redisTooNew:
		return errRedisNewer
	case n != redisDone:
		return ErrChanged
	case !confirmed:
		return errTooFewReplicas
	}
	return nil
}
