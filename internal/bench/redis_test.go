package bench_test

import (
	"context"
	"net/http"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
)

// The requests of one kind between two of another.
const redisBatch = 100

// redisRows are requests that are protected by a store on a Redis server, and what the
// network alone costs: a first run is two round trips, a replay one.
func redisRows(work load.Work, client *redis.Client) []*row {
	ctx := context.Background()
	store := idempotency.NewRedisStore(client)
	ping := func(times int) func(int, int) []func(int) bool {
		return func(int, int) []func(int) bool {
			return []func(int) bool{func(int) bool {
				ok := true
				for range times {
					ok = client.Ping(ctx).Err() == nil && ok
				}
				return ok
			}}
		}
	}
	one := &row{name: "PING", prepare: ping(1)}
	two := &row{name: "PING, twice", prepare: ping(2)}
	shared := func() http.Handler { return guarded(store, work) }
	rows := []*row{
		one, two,
		{name: "first run", floor: two, prepare: each(work, shared, firstRun)},
		{name: "replay", floor: one, prepare: each(work, shared, replay)},
	}
	for _, r := range rows {
		r.size, r.each, r.bare = redisBatch, true, one
	}
	one.bare, two.bare = nil, nil
	return rows
}
