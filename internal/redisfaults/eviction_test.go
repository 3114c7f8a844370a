package redisfaults

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// A server that also serves as a cache evicts records as its policy says. Check refuses
// every policy but one. This test counts the records that each of the others loses;
// docs/explanation/durability.md shows its figures.
func TestRedisEviction(t *testing.T) {
	t.Parallel()
	const claims, room = 500, 2 << 20
	server := redistest.Start(t)
	client := guardtest.RedisClient(t, server.Addr)
	st := guardtest.RedisStore(t, client)
	for policy, atLeast := range map[string]int{
		"noeviction":  0,
		"allkeys-lru": 1, "allkeys-random": 1,
		"allkeys-lfu":  0, // a record is used twice when it is made, and this cache never
		"volatile-lru": claims, "volatile-lfu": claims, "volatile-random": claims, "volatile-ttl": claims,
	} {
		ctx := t.Context()
		server.Do(t, "FLUSHALL")
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		if policy == "noeviction" {
			require.NoError(t, st.Check(ctx))
		} else {
			require.ErrorContains(t, st.Check(ctx), policy)
		}
		acknowledged := make(map[string]store.Claim)
		for range claims {
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			_, err := st.Claim(ctx, key, c)
			require.NoError(t, err)
			acknowledged[key] = c
		}
		used, err := strconv.Atoi(server.Info(t, "memory")["used_memory"])
		require.NoError(t, err)
		server.Do(t, "CONFIG", "SET", "maxmemory", used+room)
		cached := strings.Repeat("x", 4<<10)
		for range 4 { // four times as much as there is room for
			pipe := client.Pipeline()
			for range room / len(cached) {
				pipe.Set(ctx, "cache:"+guardtest.RedisKey(), cached, 0)
			}
			_, err := pipe.Exec(ctx)
			if err != nil {
				require.True(t, redis.IsOOMError(err), "%v", err)
			}
		}
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
		lost := countLost(t, st, acknowledged)
		t.Logf("%-15s %d of %d live claims would run again", policy, lost, claims)
		require.GreaterOrEqual(t, lost, atLeast, policy)
		if policy == "noeviction" {
			require.Zero(t, lost)
		}
	}
}
