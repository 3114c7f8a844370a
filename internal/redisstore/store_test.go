package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/memory"
	"example.com/idempotency/internal/redisstore"
	"example.com/idempotency/store"
)

// A client that programs pass by its value, and that cannot be compared.
type uncomparable struct {
	redis.UniversalClient
	_ []int
}

func TestRedisStoresAreTheSame(t *testing.T) {
	client := func(context bool) redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: context})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	for _, obeys := range []bool{true, false} { // without, each store has a copy of the client
		c := client(obeys)
		s := redisstore.New(c, redisstore.Config{Prefix: "a:"})
		require.True(t, store.Same(s, redisstore.New(c, redisstore.Config{Prefix: "a:", Replicas: 1, Patience: 1e9})))
		require.False(t, store.Same(s, redisstore.New(c, redisstore.Config{Prefix: "b:"})))
		require.False(t, store.Same(s, redisstore.New(client(obeys), redisstore.Config{Prefix: "a:"})))
		require.False(t, store.Same(s, memory.New(memory.Config{})))
		u := redisstore.New(uncomparable{UniversalClient: c}, redisstore.Config{Prefix: "a:"})
		require.False(t, store.Same(s, u))
		require.False(t, store.Same(u, redisstore.New(uncomparable{UniversalClient: c}, redisstore.Config{Prefix: "a:"})))
	}
}
