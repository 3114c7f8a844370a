package redisfaults

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// What the indexes of tags cost, and how they end.

var order = store.Tag([]byte("order number 77."))

func taggedClaim(tags ...store.Tag) store.Claim {
	c := guardtest.RedisClaim()
	c.Tags = append(tags, order)
	return c
}

// indexOf is the name of the index of a tag.
func indexOf(t store.Tag) string { return "idem:" + redisproto.TagIndex(t) }

// found returns the keys of the records that have a tag.
func found(t *testing.T, s store.Finder, tag store.Tag) []string {
	t.Helper()
	page, err := s.Find(t.Context(), tag, store.Query{})
	require.NoError(t, err)
	keys := []string{}
	for _, e := range page.Entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// A tripCounter counts what is sent and waited for.
type tripCounter struct{ atomic.Int64 }

func (c *tripCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.Add(1)
		return next(ctx, cmd)
	}
}

func (c *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.Add(1)
		return next(ctx, cmds)
	}
}

// On one server, a claim with tags takes one round trip, as one without. So does what ends it, unless the record is kept
// for longer or shorter than the claim has said.
func TestRedisRoundTripsOfTags(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := guardtest.RedisClientAt(t, server.Addr, func(*redis.Options) {})
	counted := new(tripCounter)
	client.AddHook(counted)
	s := guardtest.RedisStore(t, client)
	trips := func(f func()) int64 {
		before := counted.Load()
		f()
		return counted.Load() - before
	}
	ctx := t.Context()
	claim := func(key string, c store.Claim) { _, err := s.Claim(ctx, key, c); require.NoError(t, err) }
	complete := func(key string, c store.Claim, ttl time.Duration) {
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("answer"), TTL: ttl}))
	}
	warm := taggedClaim(store.Tag{1})
	claim("warm", warm)
	require.NoError(t, s.Renew(ctx, "warm", warm.Owner))
	complete("warm", warm, time.Hour)

	c := taggedClaim(store.Tag{1})
	require.EqualValues(t, 1, trips(func() { claim("key", c) }), "claim")
	require.EqualValues(t, 2, trips(func() { require.NoError(t, s.Renew(ctx, "key", c.Owner)) }), "renewal")
	require.EqualValues(t, 1, trips(func() { complete("key", c, c.Retention) }), "complete")
	require.EqualValues(t, 1, trips(func() { claim("key", taggedClaim()) }), "replay")
	long := taggedClaim()
	claim("long", long)
	require.EqualValues(t, 2, trips(func() { complete("long", long, 2*long.Retention) }), "complete, for longer")
	require.ElementsMatch(t, []string{"warm", "key", "long"}, found(t, s, order))
	require.ElementsMatch(t, []string{"warm", "key"}, found(t, s, store.Tag{1}))
}

// An index ends with its last record, and loses the others as they end. Nobody has to read it.
func TestRedisTagIndexEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	ttl := func() time.Duration {
		return time.Duration(server.Do(t, "PTTL", indexOf(order)).(int64)) * time.Millisecond
	}
	claim := func(key string, retention time.Duration, hold bool) store.Claim {
		c := taggedClaim()
		c.Lease, c.Retention, c.Hold = time.Millisecond, retention, hold
		guardtest.Claim(t, s, key, c)
		return c
	}
	for i := range 150 {
		claim(fmt.Sprint("short-", i), 2*time.Millisecond, false)
	}
	require.Eventually(t, func() bool { return server.Do(t, "EXISTS", indexOf(order)) == int64(0) }, guardtest.Patience, time.Millisecond)

	held := claim("held", time.Hour, true)
	require.Greater(t, ttl(), 24*time.Hour, "a held record has no end")
	claim("another", time.Hour, false)
	require.EqualValues(t, 2, server.Do(t, "ZCARD", indexOf(order)))
	require.NoError(t, s.Complete(t.Context(), "held", held.Owner, store.Completion{TTL: 2 * time.Hour}))
	require.InDelta(t, 2*time.Hour, ttl(), float64(time.Hour), "it has one now")
	claim("brief", 2*time.Millisecond, false)
	require.Eventually(t, func() bool {
		claim("another", time.Hour, false)
		return server.Do(t, "ZCARD", indexOf(order)) == int64(2)
	}, guardtest.Patience, time.Millisecond)
}

// A reader takes out what is no record's, but not what has become one's meanwhile.
func TestRedisFindTakesOutTheDead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	for _, key := range []string{"gone", "again", "there"} {
		c := taggedClaim()
		c.Hold = true // it has no end, and its entry lasts for longer than that of the next claim
		guardtest.Claim(t, s, key, c)
		if key != "there" {
			server.Do(t, "DEL", "idem:"+key)
		}
	}
	reader := storeBefore(t, server, "drop", func() error {
		_, err := s.Claim(t.Context(), "again", taggedClaim())
		return err
	})
	require.Equal(t, []string{"there"}, found(t, reader, order))
	require.EqualValues(t, 2, server.Do(t, "ZCARD", indexOf(order)))
	require.ElementsMatch(t, []string{"again", "there"}, found(t, s, order))
}

// Nobody runs under a claim that nobody could find, and nobody is told that it was refused. A replay needs no entry.
func TestRedisClaimIsNotEnteredForATag(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	server.Do(t, "SET", indexOf(order), "something else")
	c := taggedClaim()
	_, err := s.Claim(t.Context(), "key", c)
	require.ErrorContains(t, err, "not entered in the index of a tag")
	for _, refusal := range []error{idempotency.ErrStoreFull, store.ErrNotFound, store.ErrCorrupt, store.ErrUnreadableHere} {
		require.NotErrorIs(t, err, refusal)
	}
	require.NoError(t, s.Complete(t.Context(), "key", c.Owner, store.Completion{Answer: []byte("answer"), TTL: time.Hour}))
	r := guardtest.Claim(t, s, "key", taggedClaim())
	require.Equal(t, store.Completed, r.State)
}

// A full server completes a run under a tag, whose entry lasts for as long as the answer.
func TestRedisFullServerKeepsTags(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	c := taggedClaim()
	guardtest.Claim(t, s, "key", c)
	server.Do(t, "CONFIG", "SET", "maxmemory", "100")
	require.NoError(t, s.Complete(t.Context(), "key", c.Owner, store.Completion{Answer: []byte("answer"), TTL: 1000 * time.Hour}))
	require.Greater(t, server.Do(t, "PTTL", indexOf(order)), (999 * time.Hour).Milliseconds())
	require.Equal(t, []string{"key"}, found(t, s, order))
	r := guardtest.Claim(t, s, "key", taggedClaim(store.Tag{1}))
	require.Equal(t, store.Completed, r.State)
	_, err := s.Claim(t.Context(), "new", taggedClaim())
	require.ErrorIs(t, err, idempotency.ErrStoreFull)
}

// A server that refuses the connection has replied to no command of a pipeline. The claim says why it has failed, whatever
// goes with it.
func TestRedisRefusesTheConnectionOfAPipeline(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := guardtest.RedisClientAt(t, server.Addr, func(o *redis.Options) { o.Username, o.Password = "payments", "wrong" })
	for name, opts := range map[string][]idempotency.RedisOption{
		"alone": nil, "with replicas": {idempotency.WithReplicas(1, time.Second)},
	} {
		for _, c := range []store.Claim{guardtest.RedisClaim(), taggedClaim(), taggedClaim(store.Tag([]byte("another order 7.")))} {
			_, err := guardtest.RedisStore(t, client, opts...).Claim(t.Context(), guardtest.RedisKey(), c)
			require.ErrorContains(t, err, "idempotency: redis: WRONGPASS", name)
		}
	}
}
