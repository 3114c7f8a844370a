package idempotency

import (
	"context"
	"fmt"
)

// Renew implements [Store].
func (s *RedisStore) Renew(ctx context.Context, key string, o Owner) error {
	return s.owned(ctx, renewScript, true, key, o)
}

// SaveStep implements [StepStore].
func (s *RedisStore) SaveStep(ctx context.Context, key string, o Owner, name string, value []byte) error {
	return s.owned(ctx, stepScript, true, key, o, "s:"+name, value)
}

// Release implements [Store].
func (s *RedisStore) Release(ctx context.Context, key string, o Owner) error {
	return s.owned(ctx, settleScript, false, key, o, int(StateReleased), s.channel, "")
}

// Hold implements [Store].
func (s *RedisStore) Hold(ctx context.Context, key string, o Owner) error {
	return s.owned(ctx, settleScript, true, key, o, int(StateHeld), s.channel, "")
}

// owned runs a script whose first argument is the owner. With durable it waits for the
// replicas: what it writes must not be forgotten, or a step or a run is repeated, or
// overtaken.
func (s *RedisStore) owned(ctx context.Context, script redisScript, durable bool, key string, o Owner, args ...any) error {
	n, confirmed, err := s.number(ctx, script, durable, key, append([]any{o[:]}, args...)...)
	if err != nil {
		return err
	}
	if err := ownerResult(o, n); err != nil || confirmed {
		return err
	}
	return errTooFewReplicas
}

// ownerResult turns what a script returned to an owner into an error.
func ownerResult(o Owner, n int64) error {
	switch {
	case n == redisUnknown:
		return fmt.Errorf("%w: redis: impossible header", ErrCorrupt)
	case n == redisTooNew:
		return errRedisNewer
	case n != redisDone || o == Owner{}: // nobody owns what was settled by hand
		return ErrNotOwner
	}
	return nil
}
