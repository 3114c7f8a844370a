package redisstore

// The servers that records are on.

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisclient"
)

// masters returns the servers that records are on, those of a Cluster in the order of their
// addresses.
func (s *server) masters(ctx context.Context) ([]redisclient.Client, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return []redisclient.Client{s.client}, nil
	}
	var mu sync.Mutex
	var masters []redisclient.Client
	err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	slices.SortFunc(masters, func(a, b redisclient.Client) int { return cmp.Compare(addrOf(a), addrOf(b)) })
	return masters, err
}

// addrOf returns the address of a master of a Cluster, or nothing for any other server.
func addrOf(master redisclient.Client) string {
	if c, ok := master.(*redis.Client); ok {
		return c.Options().Addr
	}
	return ""
}
