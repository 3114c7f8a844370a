package idempotency_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/storetest"
)

// The contract holds on every kind of server, also when replies are lost and commands
// are sent again, when replicas have to confirm, and when every answer is large enough
// to travel outside of the scripts.
func TestRedisContract(t *testing.T) {
	t.Parallel()
	for name, start := range guardtest.RedisBackends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t)
			if name == "miniredis" { // passes time for all keys at once
				storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
					t.Helper()
					b := start(t)
					return guardtest.RedisStore(t, guardtest.RedisClient(t, b.Addrs...)), func(d time.Duration) { b.Advance(t, "", d) }
				}})
				return
			}
			redisContract(t, b, guardtest.RedisClient(t, b.Addrs...))
		})
	}
	t.Run("resent", func(t *testing.T) {
		t.Parallel()
		b := guardtest.RedisBackends["server"](t)
		client := guardtest.RedisClient(t, b.Addrs...)
		client.AddHook(redisResend{})
		redisContract(t, b, client)
	})
	t.Run("replicas", func(t *testing.T) {
		t.Parallel()
		master := redistest.Start(t)
		redistest.StartReplica(t, master)
		b := guardtest.RedisBackend{Addrs: []string{master.Addr}, Advance: master.Advance}
		redisContract(t, b, guardtest.RedisClient(t, b.Addrs...), idempotency.WithReplicas(1, 10*time.Second))
	})
}

// redisContract runs the kit with a prefix of its own for each case.
func redisContract(t *testing.T, b guardtest.RedisBackend, client redis.UniversalClient, opts ...idempotency.RedisOption) {
	storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
		t.Helper()
		prefix := guardtest.RedisKey() + ":"
		store := guardtest.RedisStore(t, client, append(opts, idempotency.WithPrefix(prefix))...)
		return store, func(d time.Duration) { b.Advance(t, prefix, d) }
	}})
}
