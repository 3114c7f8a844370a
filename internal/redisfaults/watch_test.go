package redisfaults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

func requireWoken(t *testing.T, settled <-chan struct{}) {
	t.Helper()
	select {
	case <-settled:
	case <-time.After(guardtest.Patience):
		t.Fatal("not woken")
	}
}

func requireNotWoken(t *testing.T, settled <-chan struct{}) {
	t.Helper()
	select {
	case <-settled:
		t.Fatal("woken without reason")
	default:
	}
}

// Who saw the record in flight is woken, however close together that and the end of
// the run are.
func TestRedisNoLostWakeup(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		ctx := t.Context()
		other := guardtest.RedisStore(t, guardtest.RedisClient(t, b.Addrs...)) // another process
		asleep := 0
		for i := range 200 {
			key, c, d := guardtest.RedisKey(), guardtest.RedisClaim(), guardtest.RedisClaim()
			d.Watch = true
			claimed(t, s, key, c)
			settled, stop, err := other.Watch(ctx, key)
			require.NoError(t, err)
			var settling sync.WaitGroup
			settling.Go(func() {
				if i%2 == 0 {
					require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}))
				} else {
					require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
				}
			})
			r := claimed(t, other, key, d)
			if r.State == store.Claimed {
				requireWoken(t, settled)
				asleep++
			}
			stop()
			settling.Wait()
		}
		require.NotZero(t, asleep, "nobody had to wait")
	})
}

// Nobody is told what nobody waits for, nor what others wait for.
func TestRedisWatchIsQuiet(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, _ guardtest.RedisBackend) {
		ctx := t.Context()
		watched, announced := guardtest.RedisKey(), guardtest.RedisKey()
		settled, stop, err := s.Watch(ctx, watched)
		require.NoError(t, err)
		defer stop()
		last, stopLast, err := s.Watch(ctx, announced)
		require.NoError(t, err)
		defer stopLast()

		// No claim has asked to be told about the first.
		c, d := guardtest.RedisClaim(), guardtest.RedisClaim()
		claimed(t, s, watched, c)
		require.NoError(t, s.Complete(ctx, watched, c.Owner, store.Completion{TTL: time.Hour}))
		claimed(t, s, announced, c)
		d.Watch = true
		claimed(t, s, announced, d)
		require.NoError(t, s.Release(ctx, announced, c.Owner, store.Release{}))
		requireWoken(t, last)
		requireNotWoken(t, settled)
	})
}

// A connection that is lost loses messages: everybody looks again once there is a new
// one, and is woken as before from then on.
func TestRedisWatchReconnects(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr))
	ctx, key, c, d := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim(), guardtest.RedisClaim()
	d.Watch = true
	claimed(t, s, key, c)
	settled, stop, err := s.Watch(ctx, key)
	require.NoError(t, err)
	defer stop()
	for range 3 {
		server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		requireWoken(t, settled)
	}
	require.Equal(t, store.Claimed, claimed(t, s, key, d).State)
	require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}))
	requireWoken(t, settled)

	server.Kill()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, stop, err := s.Watch(ctx, key)
		if err == nil {
			stop()
		}
		return err != nil
	}, guardtest.Patience, 10*time.Millisecond, "watching where nobody listens")
	server.Restart(t)
	requireWoken(t, settled)
	_, stop, err = s.Watch(ctx, key)
	require.NoError(t, err)
	stop()
}

// A connection that only seems to be there is given up.
func TestRedisWatchSilence(t *testing.T) {
	slow(t)
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr))
	settled, stop, err := s.Watch(t.Context(), guardtest.RedisKey())
	require.NoError(t, err)
	defer stop()
	server.Pause(t)
	// Twice the silence that is allowed, and as much again for a busy machine.
	time.AfterFunc(15*time.Second, func() { server.Resume(t) })
	select {
	case <-settled:
	case <-time.After(40 * time.Second):
		t.Fatal("not woken")
	}
}

// All watches of a store share one connection, which ends with the store.
func TestRedisWatchConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr))
	listeners := func() int64 {
		return server.Do(t, "PUBSUB", "NUMSUB", "idem:settled").([]any)[1].(int64)
	}
	claimed(t, s, guardtest.RedisKey(), guardtest.RedisClaim())
	require.Zero(t, listeners(), "a store that nobody waits at listens")

	guardtest.Together(50, func(int) {
		_, stop, err := s.Watch(t.Context(), guardtest.RedisKey())
		require.NoError(t, err)
		stop()
		stop()
	})
	require.EqualValues(t, 1, listeners())

	settled, stop, err := s.Watch(t.Context(), guardtest.RedisKey())
	require.NoError(t, err)
	defer stop()
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	requireWoken(t, settled)
	require.Eventually(t, func() bool { return listeners() == 0 }, guardtest.Patience, 10*time.Millisecond)
	_, _, err = s.Watch(t.Context(), guardtest.RedisKey())
	require.ErrorContains(t, err, "closed")
	_, err = s.Claim(t.Context(), guardtest.RedisKey(), guardtest.RedisClaim())
	require.NoError(t, err, "the client stays open")
}
