package redisfaults

// What RedisStore.Check says of servers, and by when.

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

func TestRedisCheck(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redistest.Start(t)
	require.NoError(t, guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Check(ctx))
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		require.ErrorContains(t, guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Check(ctx), policy)
	}

	cluster := redistest.StartCluster(t, 3, false)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...))
	require.NoError(t, s.Check(ctx))
	cluster.Masters[2].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	require.ErrorContains(t, s.Check(ctx), "allkeys-lru")

	server.Kill()
	require.Error(t, guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr)).Check(ctx))
}

// A replica is not a place for records, whether or not it takes writes. The nodes of a Cluster
// send their clients to the master, so a client that knows the address of a replica is right.
func TestRedisCheckFindsAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	require.NoError(t, guardtest.RedisStore(t, guardtest.RedisClient(t, master.Addr), idempotency.WithReplicas(1, time.Second)).Check(ctx))
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, replica.Addr))
	_, err := s.Claim(ctx, guardtest.RedisKey(), guardtest.RedisClaim())
	require.Error(t, err)
	require.ErrorContains(t, s.Check(ctx), "is a replica")
	replica.Do(t, "CONFIG", "SET", "replica-read-only", "no")
	require.ErrorContains(t, s.Check(ctx), "is a replica")
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	require.NoError(t, s.Check(ctx))

	cluster := redistest.StartCluster(t, 1, true)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{cluster.Replicas[0].Addr}})
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, guardtest.RedisStore(t, client).Check(ctx))
}

// A replica that evicts forgets records once it is the master. One that is away is no reason to
// refuse the rest.
func TestRedisCheckAsksReplicas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, true)
	for name, obeys := range map[string]bool{"obeys": true, "does not obey": false} {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: obeys})
			t.Cleanup(func() { _ = client.Close() })
			s := guardtest.RedisStore(t, client)
			require.NoError(t, s.Check(t.Context()))
			cluster.Replicas[0].Do(t, "ACL", "SETUSER", "default", "-info")
			require.NoError(t, s.Check(t.Context()), "a replica refuses to tell")
			cluster.Replicas[0].Do(t, "ACL", "SETUSER", "default", "+info")
			cluster.Replicas[0].Pause(t)
			require.NoError(t, s.Check(t.Context()), "a replica does not answer")
			// The client may ask any node which nodes there are, and one that stands still delays that.
			cluster.Replicas[0].Resume(t)
			cluster.Replicas[1].Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			require.Eventually(t, func() bool { // a busy replica may be passed over
				err := s.Check(t.Context())
				return err != nil && strings.Contains(err.Error(), "replica "+cluster.Replicas[1].Addr+": maxmemory-policy is \"allkeys-lru\"")
			}, guardtest.Patience, time.Millisecond)
			cluster.Replicas[1].Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		})
	}
}

// Check is called at the start of a program, with a deadline that the client may not know.
func TestRedisCheckReturnsByItsDeadline(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, false)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), ReadTimeout: time.Hour, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	s := guardtest.RedisStore(t, client)
	require.NoError(t, s.Check(t.Context()))
	cluster.Masters[1].Pause(t)
	defer cluster.Masters[1].Resume(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Check(ctx) }()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(guardtest.Patience):
		t.Fatal("the check goes on after its deadline")
	}
}
