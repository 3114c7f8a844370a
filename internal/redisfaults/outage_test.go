package redisfaults

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// noticeAfter returns how long the servers of a failover test wait for a silent master. The
// variable REDIS_NOTICE_MS replaces the short time of the tests, so that the figures of
// docs/how-to/choosing.md can be measured with the settings that servers really have.
func noticeAfter(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if s := os.Getenv("REDIS_NOTICE_MS"); s != "" {
		ms, err := strconv.Atoi(s)
		require.NoError(t, err)
		return time.Duration(ms) * time.Millisecond
	}
	return short
}

// outage kills a master and returns how long the store grants no claim.
func outage(t *testing.T, store *idempotency.RedisStore, key string, master *redistest.Server) time.Duration {
	t.Helper()
	claim := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := store.Claim(ctx, key, guardtest.RedisClaim())
		return err
	}
	require.NoError(t, claim())
	start := time.Now()
	master.Kill()
	for claim() != nil {
		time.Sleep(20 * time.Millisecond) // a poll
	}
	return time.Since(start)
}

// A failover takes the time after which the servers notice, and some seconds more: for their
// agreement, and until the client has found the new master.
func TestRedisOutageOfAFailover(t *testing.T) {
	t.Parallel()
	const more = 20 * time.Second
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		notice := noticeAfter(t, 500*time.Millisecond)
		f := redistest.StartFailover(t)
		for _, s := range f.Sentinels {
			s.Do(t, "SENTINEL", "SET", redistest.MasterName, "down-after-milliseconds", notice.Milliseconds())
		}
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterName, SentinelAddrs: f.Addrs(), ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = client.Close() })
		took := outage(t, guardtest.RedisStore(t, client), guardtest.RedisKey(), f.Master)
		t.Logf("down-after-milliseconds %d: %v", notice.Milliseconds(), took)
		require.Less(t, took, notice+more)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		notice := noticeAfter(t, time.Second)
		c := redistest.StartCluster(t, 3, true)
		for _, s := range append(append([]*redistest.Server{}, c.Masters...), c.Replicas...) {
			s.Do(t, "CONFIG", "SET", "cluster-node-timeout", notice.Milliseconds())
		}
		key := guardtest.RedisKey()
		master, _ := c.Holder(t, "idem:"+key)
		took := outage(t, guardtest.RedisStore(t, guardtest.RedisClient(t, c.Addrs()...)), key, master)
		t.Logf("cluster-node-timeout %d: %v", notice.Milliseconds(), took)
		require.Less(t, took, notice+more)
	})
}
