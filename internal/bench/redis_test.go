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
// network alone costs: a first run is two round trips, a replay one. The client has the options
// that one has by default, and in the last two rows ContextTimeoutEnabled.
func redisRows(work load.Work, client, obedient *redis.Client) []*row {
	ctx := context.Background()
	guard := func(client *redis.Client) func() http.Handler {
		store := idempotency.NewRedisStore(client)
		return func() http.Handler { return guarded(store, work) }
	}
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
	rows := []*row{
		one, two,
		{name: "first run", floor: two, prepare: each(work, guard(client), firstRun)},
		{name: "replay", floor: one, prepare: each(work, guard(client), replay)},
		{name: "first run, `ContextTimeoutEnabled`", floor: two, prepare: each(work, guard(obedient), firstRun)},
		{name: "replay, `ContextTimeoutEnabled`", floor: one, prepare: each(work, guard(obedient), replay)},
	}
	for _, r := range rows {
		r.size, r.each, r.bare = redisBatch, true, one
	}
	one.bare, two.bare = nil, nil
	return rows
}
