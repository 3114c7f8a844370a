package idempotency_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
)

// redisResend is a client whose every command is executed twice, as when the first
// reply is lost and the client sends the command again.
type redisResend struct{}

func (redisResend) DialHook(next redis.DialHook) redis.DialHook { return next }

func (redisResend) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = next(ctx, cmd)
		cmd.SetErr(nil)
		return next(ctx, cmd)
	}
}

func (redisResend) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_ = next(ctx, cmds)
		for _, cmd := range cmds {
			cmd.SetErr(nil)
		}
		return next(ctx, cmds)
	}
}

// A wholeScan is a client whose ZSCAN of the index of a tag returns all of it: to miniredis, a cursor is a number of
// entries, so what comes and goes between two pages hides others.
type wholeScan struct{}

func (wholeScan) DialHook(next redis.DialHook) redis.DialHook { return next }

func (wholeScan) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (wholeScan) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		// EVALSHA digest 1 index cursor count
		if args := cmd.Args(); len(args) == 6 && strings.Contains(args[3].(string), "tag ") {
			args[5] = 1 << 20
		}
		return next(ctx, cmd)
	}
}

// An answer above the size that travels through scripts goes into a field named by
// its owner. Neither an owner that comes too late nor a repeated call may leave one.
func TestRedisLargeAnswer(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		ctx, key := t.Context(), guardtest.RedisKey()
		client := guardtest.RedisClient(t, b.Addrs...)
		first, second := guardtest.RedisClaim(), guardtest.RedisClaim()
		large := []byte(strings.Repeat("large ", 5000))
		other := []byte(strings.Repeat("other ", 5000))

		require.ErrorIs(t, s.Complete(ctx, key, first.Owner, store.Completion{Answer: large, TTL: time.Hour}), store.ErrNotOwner)
		require.Zero(t, client.Exists(ctx, "idem:"+key).Val(), "an owner without a record left one")

		guardtest.Claim(t, s, key, first)
		b.Advance(t, "idem:", first.Lease)
		r := guardtest.Claim(t, s, key, second)
		require.Equal(t, 2, r.Attempt)

		require.ErrorIs(t, s.Complete(ctx, key, first.Owner, store.Completion{Answer: large, TTL: time.Hour}), store.ErrNotOwner)
		require.ElementsMatch(t, []string{"m"}, client.HKeys(ctx, "idem:"+key).Val())

		require.NoError(t, s.Complete(ctx, key, second.Owner, store.Completion{Answer: large, TTL: time.Hour}))
		require.NoError(t, s.Complete(ctx, key, second.Owner, store.Completion{Answer: other, TTL: time.Hour}))
		require.ErrorIs(t, s.Complete(ctx, key, first.Owner, store.Completion{Answer: other, TTL: time.Hour}), store.ErrNotOwner)
		for range 2 {
			r = guardtest.Claim(t, s, key, guardtest.RedisClaim())
			require.Equal(t, store.Completed, r.State)
			require.Equal(t, string(large), string(r.Answer))
		}
		r, err := s.GetAnswer(ctx, key)
		require.NoError(t, err)
		require.Equal(t, string(large), string(r.Answer))
		require.ElementsMatch(t, []string{"m", "r:" + string(second.Owner[:])},
			client.HKeys(ctx, "idem:"+key).Val())
	})
}

// A small answer that is there stays, also when a large one comes after it.
func TestRedisLargeAnswerAfterSmall(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
		guardtest.Claim(t, s, key, c)
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("small"), TTL: time.Hour}))
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: make([]byte, 20_000), TTL: time.Hour}))
		r := guardtest.Claim(t, s, key, guardtest.RedisClaim())
		require.Equal(t, "small", string(r.Answer))
		require.ElementsMatch(t, []string{"m", "r"}, guardtest.RedisClient(t, b.Addrs...).HKeys(ctx, "idem:"+key).Val())
	})
}

// What is stored under a record's name and cannot be read is never run over.
func TestRedisForeignData(t *testing.T) {
	// header is that of a first attempt, with the fingerprint of the claim below.
	header := func(start ...byte) string {
		size := 64
		if start[1] == 3 { // completed
			size = 70
		}
		return string(start) + "\x00\x00\x00\x01" + strings.Repeat("\x01", size-len(start)-4)
	}
	type spoil = func(ctx context.Context, c redis.UniversalClient, name string)
	set := func(header string) spoil {
		return func(ctx context.Context, c redis.UniversalClient, name string) { c.HSet(ctx, name, "m", header) }
	}
	cases := map[string]struct {
		spoil     spoil
		corrupt   bool // or else only too new
		ownerless bool // not even the owner can be told
	}{
		"no hash": {func(ctx context.Context, c redis.UniversalClient, name string) {
			c.Set(ctx, name, "x", time.Hour)
		}, true, true},
		"no header": {func(ctx context.Context, c redis.UniversalClient, name string) {
			c.HSet(ctx, name, "x", "y")
			c.HDel(ctx, name, "m")
		}, true, false},
		"no expiry": {func(ctx context.Context, c redis.UniversalClient, name string) {
			c.Persist(ctx, name)
		}, true, false},
		"no answer":       {set(header(1, 3, 2)), true, false},
		"no attempt":      {set("\x01\x01\x00\x00\x00\x00\x00" + strings.Repeat("\x01", 57)), true, false},
		"empty header":    {set(""), true, true},
		"short header":    {set("\x01\x01"), true, true},
		"no status":       {set(header(1, 3, 0)[:64]), true, true},
		"long header":     {set(header(1, 1, 0) + "x"), false, true},
		"version 0":       {set(header(0, 1, 0)), true, true},
		"unknown state":   {set(header(1, 9, 0)), true, false},
		"version 2":       {set(header(2, 1, 0)), false, true},
		"version 2, long": {set(header(2, 1, 0) + "x"), false, true},
	}
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		client := guardtest.RedisClient(t, b.Addrs...)
		for name, test := range cases {
			t.Run(name, func(t *testing.T) {
				ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
				for i := range c.Fingerprint {
					c.Fingerprint[i] = 1
				}
				guardtest.Claim(t, s, key, c)
				test.spoil(ctx, client, "idem:"+key)
				content := func() any {
					return []any{client.HGetAll(ctx, "idem:"+key).Val(), client.Get(ctx, "idem:"+key).Val()}
				}
				before := content()

				c.Owner[0]++
				for range 2 {
					_, err := s.Claim(ctx, key, c)
					require.Error(t, err)
					require.Equal(t, test.corrupt, errors.Is(err, idempotency.ErrCorrupt), "Claim: %v", err)
					for _, get := range []func(context.Context, string) (store.Record, error){s.Get, s.GetAnswer} {
						_, err = get(ctx, key)
						require.Error(t, err)
						require.Equal(t, test.corrupt, errors.Is(err, idempotency.ErrCorrupt), "Get: %v", err)
					}
				}
				for what, err := range map[string]error{
					"Complete": s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}),
					"large":    s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}),
					"Release":  s.Release(ctx, key, c.Owner, store.Release{}),
					"Hold":     s.Hold(ctx, key, c.Owner, nil),
					"Renew":    s.Renew(ctx, key, c.Owner),
					"SaveStep": s.SaveStep(ctx, key, c.Owner, "a", nil),
					"Resolve":  s.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 7), store.Settlement{}),
				} {
					require.Error(t, err, what)
					if test.ownerless {
						require.Equal(t, test.corrupt, errors.Is(err, idempotency.ErrCorrupt), "%s: %v", what, err)
						require.NotErrorIs(t, err, store.ErrNotOwner, what)
						require.NotErrorIs(t, err, idempotency.ErrChanged, what)
					}
				}
				require.Equal(t, before, content())

				// A hash that is not a record can be forgotten by somebody who has seen that.
				// A record of a newer version is left alone, and so is what is not a hash.
				require.Error(t, s.Forget(ctx, key, guardtest.HeldBy(c.Owner, 7)))
				require.Equal(t, before, content())
				removable := test.corrupt && client.Type(ctx, "idem:"+key).Val() == "hash"
				err := s.Forget(ctx, key, store.Seen{State: store.Corrupt})
				require.Equal(t, removable, err == nil, "Forget: %v", err)
				require.Equal(t, removable, client.Exists(ctx, "idem:"+key).Val() == 0)
			})
		}
	})
}

// Whoever takes the expiry from a record makes it unreadable. A repeated call leaves that so:
// it must not end the record, or the key is run again.
func TestRedisRecordWithoutExpiryStays(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
		guardtest.Claim(t, s, key, c)
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("done"), TTL: time.Hour}))
		client := guardtest.RedisClient(t, b.Addrs...)
		require.True(t, client.Persist(ctx, "idem:"+key).Val())
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("done"), TTL: time.Hour}))
		require.Equal(t, time.Duration(-1), client.PTTL(ctx, "idem:"+key).Val())
		_, err := s.Claim(ctx, key, guardtest.RedisClaim())
		require.ErrorIs(t, err, idempotency.ErrCorrupt)
	})
}

// A store lists its own records and nothing else.
func TestRedisList(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, _ *idempotency.RedisStore, b guardtest.RedisBackend) {
		ctx, client := t.Context(), guardtest.RedisClient(t, b.Addrs...)
		s := guardtest.RedisStore(t, client, idempotency.WithPrefix("a[b*]?:"))
		other := guardtest.RedisStore(t, client, idempotency.WithPrefix("abb:"))
		want := make(map[string]idempotency.Fingerprint)
		for range 1200 {
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			copy(c.Fingerprint[:], c.Owner[:])
			guardtest.Claim(t, s, key, c)
			want[key] = c.Fingerprint
		}
		guardtest.Claim(t, other, guardtest.RedisKey(), guardtest.RedisClaim())
		require.NoError(t, client.Set(ctx, "a[b*]?:string", "x", time.Hour).Err())
		require.NoError(t, client.HSet(ctx, "a[b*]?:hash", "x", "y").Err())

		got := make(map[string]idempotency.Fingerprint)
		for _, e := range guardtest.List(t, s, store.Query{}) {
			require.Equal(t, store.Claimed, e.Record.State)
			got[e.Key] = e.Record.Fingerprint
		}
		require.Equal(t, want, got)
	})
}

func TestNewRedisStorePanics(t *testing.T) {
	client := guardtest.RedisClient(t, "127.0.0.1:1")
	require.Panics(t, func() { idempotency.NewRedisStore(nil) })
	require.Panics(t, func() { idempotency.NewRedisStore((*redis.Client)(nil)) })
	require.Panics(t, func() { idempotency.NewRedisStore((*redis.ClusterClient)(nil)) })
	require.Panics(t, func() { idempotency.NewRedisStore(redis.NewRing(&redis.RingOptions{})) })
	wrapped := struct{ *redis.Ring }{redis.NewRing(&redis.RingOptions{})}
	require.Panics(t, func() { idempotency.NewRedisStore(wrapped) })
	require.Panics(t, func() { idempotency.NewRedisStore(client, idempotency.WithReplicas(-1, time.Second)) })
	require.Panics(t, func() { idempotency.NewRedisStore(client, idempotency.WithReplicas(1, 0)) })
}

// Durations that the header cannot hold are refused before anything is sent: cut off,
// they would shorten a lease.
func TestRedisImpossibleClaims(t *testing.T) {
	server := miniredis.RunT(t)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr()))
	for name, change := range map[string]func(*store.Claim){
		"no owner":       func(c *store.Claim) { c.Owner = store.Owner{} },
		"no lease":       func(c *store.Claim) { c.Lease = 0 },
		"no retention":   func(c *store.Claim) { c.Retention = 0 },
		"long lease":     func(c *store.Claim) { c.Lease, c.Retention = 50*24*time.Hour, 200*24*time.Hour },
		"long retention": func(c *store.Claim) { c.Retention = 35 * 366 * 24 * time.Hour },
		"lease outlives": func(c *store.Claim) { c.Lease = 2 * c.Retention },
	} {
		c := guardtest.RedisClaim()
		change(&c)
		_, err := s.Claim(t.Context(), guardtest.RedisKey(), c)
		require.Error(t, err, name)
	}
	require.Empty(t, server.Keys())

	key, c := guardtest.RedisKey(), guardtest.RedisClaim()
	guardtest.Claim(t, s, key, c)
	require.Error(t, s.Complete(t.Context(), key, c.Owner, store.Completion{TTL: 0}))
	require.NoError(t, s.Complete(t.Context(), key, c.Owner, store.Completion{TTL: 1}), "rounded up to a millisecond")
}

// Only the decision that stands may be repeated: neither another answer nor the state
// that a run has reached by itself passes for it.
func TestRedisResolveAgain(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, _ guardtest.RedisBackend) {
		ctx := t.Context()
		claim := func() (string, store.Owner) {
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			guardtest.Claim(t, s, key, c)
			return key, c.Owner
		}
		held, owner := claim()
		require.NoError(t, s.Hold(ctx, held, owner, nil))
		for range 2 {
			require.NoError(t, s.Resolve(ctx, held, guardtest.HeldBy(owner, 1), guardtest.Answered("a")))
			require.ErrorIs(t, s.Resolve(ctx, held, guardtest.HeldBy(owner, 1), guardtest.Answered("b")), idempotency.ErrChanged)
			require.ErrorIs(t, s.Resolve(ctx, held, guardtest.HeldBy(owner, 1), store.Settlement{}), idempotency.ErrChanged)
		}
		require.ErrorIs(t, s.Complete(ctx, held, owner, store.Completion{TTL: time.Hour}), store.ErrNotOwner)
		r, err := s.GetAnswer(ctx, held)
		require.NoError(t, err)
		require.Equal(t, "a", string(r.Answer))

		completed, owner := claim()
		require.NoError(t, s.Complete(ctx, completed, owner, store.Completion{Answer: []byte("a"), TTL: time.Hour}))
		require.ErrorIs(t, s.Resolve(ctx, completed, guardtest.HeldBy(owner, 1), guardtest.Answered("a")), idempotency.ErrChanged)

		released, owner := claim()
		require.NoError(t, s.Release(ctx, released, owner, store.Release{}))
		require.ErrorIs(t, s.Resolve(ctx, released, guardtest.HeldBy(owner, 1), store.Settlement{}), idempotency.ErrChanged)
	})
}

// Whoever only looks at a lapsed claim that says hold is told the same as who claims.
func TestRedisLapsedHoldIsHeld(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		ctx, key, c, d := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim(), guardtest.RedisClaim()
		c.Hold, d.Fingerprint[0] = true, 1
		guardtest.Claim(t, s, key, c)
		b.Advance(t, "idem:", c.Lease)
		got := guardtest.Get(t, s, key)
		mismatch, err := s.Claim(ctx, key, d)
		require.NoError(t, err)
		listed := guardtest.List(t, s, store.Query{})
		require.Len(t, listed, 1)
		for _, r := range []store.Record{got, mismatch, listed[0].Record} {
			require.Equal(t, store.Held, r.State)
			require.Zero(t, r.Lease)
		}
		require.NoError(t, s.Renew(ctx, key, c.Owner), "nobody has taken note yet")
	})
}

// In its last millisecond a record has an expiry of zero, which written back would
// delete it, and what is written after that would stay for ever.
func TestRedisLastMillisecond(t *testing.T) {
	server := miniredis.RunT(t)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr()))
	key, c := guardtest.RedisKey(), guardtest.RedisClaim()
	c.Hold, c.HoldEnds = true, true
	guardtest.Claim(t, s, key, c)
	server.FastForward(c.Retention - time.Millisecond/2)
	r := guardtest.Claim(t, s, key, guardtest.RedisClaim())
	require.Equal(t, store.Held, r.State)
	require.Positive(t, server.TTL("idem:"+key))
	require.LessOrEqual(t, server.TTL("idem:"+key), time.Millisecond)
}

// A server's clock that is set back makes leases, and the time for which an answer is kept,
// longer by as much. Whoever comes first puts an end to that: both begin anew, so that a
// live claim stays protected and that of a dead process lapses.
func TestRedisClockSetBack(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, s *idempotency.RedisStore, b guardtest.RedisBackend) {
		const back = 48 * time.Hour
		ctx, key, first := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
		claim := func() store.Record {
			r := guardtest.Claim(t, s, key, guardtest.RedisClaim())
			return r
		}
		guardtest.Claim(t, s, key, first)
		b.Advance(t, "idem:", -back)
		r := claim()
		require.Equal(t, store.Claimed, r.State)
		require.False(t, r.Mine)
		require.Equal(t, first.Lease, r.Lease)
		b.Advance(t, "idem:", first.Lease/2)
		require.False(t, claim().Mine)
		require.NoError(t, s.Renew(ctx, key, first.Owner))
		b.Advance(t, "idem:", first.Lease/2)
		require.False(t, claim().Mine, "it has been renewed")
		b.Advance(t, "idem:", first.Lease)
		second := guardtest.RedisClaim()
		r = guardtest.Claim(t, s, key, second)
		require.True(t, r.Mine)
		require.Equal(t, 2, r.Attempt)

		require.NoError(t, s.Complete(ctx, key, second.Owner, store.Completion{Answer: []byte("done"), TTL: time.Hour}))
		b.Advance(t, "idem:", -back)
		require.Equal(t, "done", string(claim().Answer))
		b.Advance(t, "idem:", time.Hour)
		require.True(t, claim().Mine)
	})
}

// The contract holds on every kind of server, also when replies are lost and commands
// are sent again, when replicas have to confirm, and when every answer is large enough
// to travel outside of the scripts.
func TestRedisContract(t *testing.T) {
	for name, start := range guardtest.RedisBackends {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			if name == "miniredis" { // passes time for all keys at once
				storetest.Run(t, storetest.Harness{New: func(t testing.TB) (idempotency.Store, func(time.Duration)) {
					t.Helper()
					b := start(t)
					client := guardtest.RedisClient(t, b.Addrs...)
					client.AddHook(wholeScan{})
					return guardtest.RedisStore(t, client), func(d time.Duration) { b.Advance(t, "", d) }
				}})
				return
			}
			redisContract(t, b, guardtest.RedisClient(t, b.Addrs...))
		})
	}
	t.Run("resent", func(t *testing.T) {
		b := guardtest.RedisBackends["server"](t)
		client := guardtest.RedisClient(t, b.Addrs...)
		client.AddHook(redisResend{})
		redisContract(t, b, client)
	})
	t.Run("default client", func(t *testing.T) {
		b := guardtest.RedisBackends["server"](t)
		client := redis.NewClient(&redis.Options{Addr: b.Addrs[0]})
		t.Cleanup(func() { _ = client.Close() })
		redisContract(t, b, client)
	})
	t.Run("replicas", func(t *testing.T) {
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
		st := guardtest.RedisStore(t, client, append(opts, idempotency.WithPrefix(prefix))...)
		return st, func(d time.Duration) { b.Advance(t, prefix, d) }
	}})
}

// A call may take as long as the least of what bounds it.
func TestCallTimeout(t *testing.T) {
	for want, c := range map[time.Duration]struct{ read, lease time.Duration }{
		2 * time.Second: {3 * time.Second, time.Minute}, 300 * time.Millisecond: {300 * time.Millisecond, time.Minute},
		100 * time.Millisecond: {300 * time.Millisecond, 300 * time.Millisecond}, time.Second: {-1, 3 * time.Second},
	} {
		options, cluster := &redis.Options{ReadTimeout: c.read}, &redis.ClusterOptions{ReadTimeout: c.read}
		for _, client := range []redis.UniversalClient{redis.NewClient(options), redis.NewClusterClient(cluster)} {
			guard := guardtest.NewGuardOf(t, idempotency.NewRedisStore(client), idempotency.SharedScope, idempotency.WithLease(c.lease))
			require.Equal(t, want, adapter.For(guard).StoreTimeout(), "%T", client)
			require.NoError(t, client.Close())
		}
	}
	guard := guardtest.NewGuardOf(t, idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.Zero(t, adapter.For(guard).StoreTimeout())
}
