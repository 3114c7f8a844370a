package idempotency_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/storetest"
)

// The contract holds on every kind of server, also when replies are lost and commands
// are sent again, when replicas have to confirm, and when every answer is large enough
// to travel outside of the scripts.
func TestRedisContract(t *testing.T) {
	t.Parallel()
	for name, start := range redisBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			if name == "miniredis" { // passes time for all keys at once
				storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
					t.Helper()
					b := start(t)
					return redisStore(t, redisClient(t, b.addrs...)), func(d time.Duration) { b.advance(t, "", d) }
				}})
				return
			}
			redisContract(t, b, redisClient(t, b.addrs...))
		})
	}
	t.Run("resent", func(t *testing.T) {
		t.Parallel()
		b := redisBackends["server"](t)
		client := redisClient(t, b.addrs...)
		client.AddHook(redisResend{})
		redisContract(t, b, client)
	})
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		master := redistest.Start(t)
		redistest.StartReplica(t, master)
		b := redisBackend{[]string{master.Addr}, master.Advance}
		redisContract(t, b, redisClient(t, b.addrs...), idempotency.WithReplicas(1, 10*time.Second))
	})
}

// redisContract runs the kit with a prefix of its own for each case.
func redisContract(t *testing.T, b redisBackend, client redis.UniversalClient, opts ...idempotency.RedisOption) {
	storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
		t.Helper()
		prefix := redisKey() + ":"
		store := redisStore(t, client, append(opts, idempotency.WithPrefix(prefix))...)
		return store, func(d time.Duration) { b.advance(t, prefix, d) }
	}})
}
