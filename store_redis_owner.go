package idempotency

// The calls of an owner. What must not be forgotten, or a step or a run is repeated or
// overtaken, is durable: it waits for the replicas that the store asks for.

import (
	"context"
	"fmt"
)

// Renew implements [Store].
func (s *RedisStore) Renew(ctx context.Context, key string, o Owner) error {
	return o.redisResult(s.number(ctx, renewScript, true, key, o[:]))
}

// SaveStep implements [StepStore].
func (s *RedisStore) SaveStep(ctx context.Context, key string, o Owner, name string, value []byte) error {
	return o.redisResult(s.number(ctx, stepScript, true, key, o[:], "s:"+name, value))
}

// Release implements [Store]. It does not wait for replicas: a failover that forgets it costs
// a lease, and runs nothing twice.
func (s *RedisStore) Release(ctx context.Context, key string, o Owner) error {
	return o.redisResult(s.number(ctx, settleScript, false, key, o[:], int(StateReleased), s.channel, ""))
}

// Hold implements [Store].
func (s *RedisStore) Hold(ctx context.Context, key string, o Owner) error {
	return o.redisResult(s.number(ctx, settleScript, true, key, o[:], int(StateHeld), s.channel, ""))
}

// redisResult turns what a script returned to an owner into an error.
func (o Owner) redisResult(n int64, confirmed bool, err error) error {
	switch {
	case err != nil:
		return err
	case n == redisUnknown:
		return fmt.Errorf("%w: redis: impossible header", ErrCorrupt)
	case n == redisTooNew:
		return errRedisNewer
	case n != redisDone || o == Owner{}: // nobody owns what was settled by hand
		return ErrNotOwner
	case !confirmed:
		return errTooFewReplicas
	}
	return nil
}
