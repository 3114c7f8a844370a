package idempotency

// How the Redis store wakes the requests that wait: one connection is subscribed to one
// channel, on which the scripts announce the records that have settled.

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/watch"
)

const (
	// redisQuiet is how long the subscription may be silent before the server is asked
	// for a sign of life. After as long again the connection is given up: one that a
	// firewall has forgotten never fails by itself.
	redisQuiet = 5 * time.Second
	// redisPause and redisMaxPause are the first and the longest pause before the store
	// subscribes again.
	redisPause, redisMaxPause = 50 * time.Millisecond, 2 * time.Second
)

// Watch implements [Watcher]. All watches of a store share one connection.
func (s *RedisStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	settled, stop, err := s.watch.Watch(ctx, s.prefix+key)
	if errors.Is(err, watch.ErrClosed) {
		err = redisError(err)
	}
	return settled, stop, err
}

// listen keeps the channel subscribed until nobody has waited for a while, or until the
// server refuses.
func (s *RedisStore) listen(ctx context.Context) error {
	pause := redisPause
	for heard := false; ; {
		err := s.receive(ctx, func() { heard, pause = true, redisPause })
		if err == nil || ctx.Err() != nil {
			return err
		}
		var reply redis.Error
		if !heard && errors.As(err, &reply) {
			return s.failure(ctx, err) // the account may not listen, for example
		}
		s.reloadAfter(ctx, err)
		s.watch.Lost()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, redisMaxPause)
		}
	}
}

// receive listens on one connection. It returns nil when nobody has waited for a while.
func (s *RedisStore) receive(ctx context.Context, heard func()) error {
	sub := s.client.Subscribe(ctx, s.channel)
	hangUp := sync.OnceFunc(func() { _ = sub.Close() })
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // nothing else ends a read
	for quiet := false; ; {
		message, err := sub.ReceiveTimeout(ctx, redisQuiet)
		switch message := message.(type) {
		case *redis.Subscription:
			heard()
			s.watch.Confirmed()
		case *redis.Message:
			s.watch.Wake(message.Payload)
		}
		if s.watch.Retire() {
			return nil
		}
		var timeout net.Error
		switch {
		case err == nil:
			quiet = false
		case quiet || !errors.As(err, &timeout) || !timeout.Timeout():
			return err
		default:
			quiet = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}
