package redisfaults

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// What calls cost: round trips, memory, and what they move.

// A first run costs two commands; a replay and a conflict cost one each. The test counts
// every command that a server receives, and lists the ones that its scripts call in turn.
func TestRedisRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 3, false)
	for name, b := range map[string]struct {
		addrs  []string
		forget func(testing.TB)
		calls  func(testing.TB) map[string]int
	}{
		"server":  {[]string{server.Addr}, server.ForgetCalls, server.Calls},
		"cluster": {cluster.Addrs(), cluster.ForgetCalls, cluster.Calls},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := guardtest.RedisStore(t, guardtest.RedisClient(t, b.addrs...))
			for range 20 { // all masters get to know the scripts
				key, c := guardtest.RedisKey(), guardtest.RedisClaim()
				claimed(t, s, key, c)
				require.NoError(t, s.Renew(ctx, key, c.Owner))
				require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}))
				recordOf(t, s, key)
			}
			// A client that discovers a server sends these, at any time. Before Redis 7.0, subcommands
			// have no counters of their own.
			ours := func() map[string]int {
				calls := b.calls(t)
				for _, other := range []string{
					"info", "config|resetstat", "ping", "command", "cluster|slots", "cluster|shards", "config", "cluster", "client",
					"hello", "client|setinfo", "client|maint_notifications", "readonly",
				} {
					delete(calls, other)
				}
				return calls
			}
			measure := func(what string, want map[string]int, call func() error) {
				t.Helper()
				b.forget(t)
				require.NoError(t, call())
				require.Equal(t, want, ours(), what)
			}
			claim := func(key string, c store.Claim) func() error {
				return func() error { _, err := s.Claim(ctx, key, c); return err }
			}

			key, c, d := guardtest.RedisKey(), guardtest.RedisClaim(), guardtest.RedisClaim()
			measure("first run: claim",
				map[string]int{"evalsha": 1, "pttl": 1, "hset": 1, "pexpire": 1},
				claim(key, c))
			measure("claim repeated",
				map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1, "pexpire": 1, "hgetall": 1},
				claim(key, c))
			measure("conflict",
				map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1},
				claim(key, d))
			measure("renewal",
				map[string]int{"evalsha": 1, "hmget": 1, "pexpire": 1},
				func() error { return s.Renew(ctx, key, c.Owner) })
			measure("first run: complete",
				map[string]int{"evalsha": 1, "hmget": 1, "pexpire": 2, "hset": 1},
				func() error {
					return s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("answer"), TTL: time.Hour})
				})
			measure("complete repeated: writes, for servers whose WAIT counts only writes",
				map[string]int{"evalsha": 1, "hmget": 1, "pttl": 1, "pexpire": 1},
				func() error {
					return s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("answer"), TTL: time.Hour})
				})
			measure("replay",
				map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1},
				claim(key, d))

			key = guardtest.RedisKey()
			measure("first run: claim",
				map[string]int{"evalsha": 1, "pttl": 1, "hset": 1, "pexpire": 1},
				claim(key, c))
			d.Watch = true
			measure("conflict, the first that waits",
				map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1, "pexpire": 1, "hset": 1},
				claim(key, d))
			measure("conflict, more that wait",
				map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1},
				claim(key, d))
			measure("first run: complete with a large answer, in one transaction",
				map[string]int{
					"multi": 1, "hsetnx": 1, "eval": 1, "exec": 1,
					"hmget": 1, "pexpire": 2, "hset": 1, "hdel": 1, "publish": 1,
				},
				func() error {
					return s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour})
				})
			measure("lookup", map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1, "hkeys": 1},
				func() error { _, err := s.Get(ctx, key); return err })
			measure("replay of a large answer",
				map[string]int{"evalsha": 1, "pttl": 1, "hmget": 1, "multi": 1, "hget": 1, "exec": 1},
				claim(key, d))
		})
	}
}

// A record without steps and answer is one small allocation of the server, with any note and label.
// Only the notes of further runs make it a table.
func TestRedisRecordIsCompact(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	compact := "listpack"
	if server.Before(t, "7.0") {
		compact = "ziplist"
	}
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, server.Addr))
	for _, what := range []struct {
		note  int
		label string
		most  int64
	}{
		{0, "", 200},
		{17, "", 230}, // of a guard
		{17, "POST /charges", 250},
		{42, "POST /charges", 280}, // with a trace
		{42, "POST /organizations/{organization}/projects/{project}/charges", 310},
	} {
		key, c := guardtest.RedisKey(), guardtest.RedisClaim()
		c.Note, c.Label = make([]byte, what.note), what.label
		claimed(t, s, key, c)
		used := server.Do(t, "MEMORY", "USAGE", "idem:"+key)
		t.Logf("note of %d bytes, label of %d: %d bytes", what.note, len(what.label), used)
		require.Equal(t, compact, server.Do(t, "OBJECT", "ENCODING", "idem:"+key))
		require.Less(t, used, what.most)
	}
}

// A server needs at most 500 bytes for a record, and 1.3 times its stored answer. The answer is
// stored as its body, its fields and a hundred bytes.
func TestRedisMemoryOfARecord(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := guardtest.RedisClient(t, server.Addr)
	g := guardtest.NewGuard(t, guardtest.RedisStore(t, client), idempotency.WithLimits(idempotency.Limits{ResponseBody: 2 << 20}))
	for _, size := range []int{0, 200, 512, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 1 << 20} {
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "/charges/ch_0123456789abcdef")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write(make([]byte, size))
		}))
		server.Do(t, "FLUSHALL")
		require.Equal(t, http.StatusCreated, guardtest.ServeRecorder(t, h).Do(t, guardtest.Call{Key: "k"}).Status)
		names, err := client.Keys(t.Context(), "*").Result()
		require.NoError(t, err)
		require.Len(t, names, 1)
		fields, err := client.HGetAll(t.Context(), names[0]).Result()
		require.NoError(t, err)
		var stored int
		for name, value := range fields {
			if name[0] == 'r' {
				stored = len(value)
			}
		}
		used := server.Do(t, "MEMORY", "USAGE", names[0]).(int64)
		t.Logf("body %d bytes: stored %d, used %d", size, stored, used)
		require.InDelta(t, size+120, stored, 80)
		require.LessOrEqual(t, float64(used), 500+1.3*float64(stored))
	}
}

// The budget is what the client library allocates for the same commands, plus a little.
func TestRedisAllocations(t *testing.T) {
	server := redistest.Start(t)
	client := guardtest.RedisClient(t, server.Addr)
	s := guardtest.RedisStore(t, client)
	ctx := context.Background()
	measure := func(f func(key string, c store.Claim)) float64 {
		const runs = 200
		keys, claims := make([]string, runs+1), make([]store.Claim, runs+1)
		for i := range keys {
			keys[i], claims[i] = guardtest.RedisKey(), guardtest.RedisClaim()
		}
		i := -1
		return testing.AllocsPerRun(runs, func() { i++; f(keys[i], claims[i]) })
	}
	answer := make([]byte, 512)
	cycle := measure(func(key string, c store.Claim) {
		_, err := s.Claim(ctx, key, c)
		require.NoError(t, err)
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: answer, TTL: time.Hour}))
	})
	key, c := guardtest.RedisKey(), guardtest.RedisClaim()
	claimed(t, s, key, c)
	require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: answer, TTL: time.Hour}))
	replay := measure(func(_ string, c store.Claim) {
		_, err := s.Claim(ctx, key, c)
		require.NoError(t, err)
	})
	ping := measure(func(string, store.Claim) { client.Ping(ctx) })
	t.Logf("allocations: claim and complete %v, replay %v, ping %v", cycle, replay, ping)
	require.LessOrEqual(t, cycle, 2*ping+15)
	require.LessOrEqual(t, replay, ping+11)
}

// countedConn counts what is read from a connection.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// A lookup tells of an answer without moving it. The test counts the bytes on the wire.
func TestLookupMovesNoAnswers(t *testing.T) {
	t.Parallel()
	const lookups, most = 50, 1 << 10
	server := redistest.Start(t)
	for name, opts := range map[string][]idempotency.Option{
		"plain": nil, "sealed": {idempotency.WithSealer(guardtest.NewSealer(t, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			var read atomic.Int64
			client := guardtest.RedisClientAt(t, server.Addr, func(o *redis.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					return countedConn{c, &read}, err
				}
			})
			st := guardtest.RedisStore(t, client, idempotency.WithPrefix(name+":"))
			guard := guardtest.NewGuard(t, st, opts...)
			body := strings.Repeat("x", 1<<20-1<<10)
			mux := http.NewServeMux()
			mux.Handle("/keys", guard.LookupHandler())
			mux.Handle("/", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte(body))
			})))
			s := guardtest.ServeRecorder(t, mux)
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)

			read.Store(0)
			for range lookups {
				got := s.Do(t, guardtest.Call{Method: http.MethodGet, Path: "/keys", Key: "k", NoBody: true})
				require.Equal(t, http.StatusOK, got.Status)
				require.Contains(t, got.Body, `"status":201`)
			}
			require.Less(t, read.Load(), int64(lookups*most))
			info := guardtest.Lookup(t, guard, guardtest.HeldKey)
			require.Equal(t, http.StatusCreated, info.Status)
			require.Greater(t, info.Size, int64(len(body)))

			read.Store(0)
			for _, e := range guardtest.List(t, st, store.Query{}) {
				require.Equal(t, http.StatusCreated, e.Record.Status)
				require.Equal(t, info.Size, e.Record.Size)
			}
			require.Less(t, read.Load(), int64(most))

			read.Store(0)
			got := s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, got.Replayed())
			require.Len(t, got.Body, len(body))
			require.Greater(t, read.Load(), int64(len(body)), "the counter counts nothing")
		})
	}
}

// What is recorded by hand is found again by a call that is repeated, although a sealer makes
// other bytes of it each time.
func TestRepeatedResolutionReadsTheAnswer(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold), idempotency.WithSealer(guardtest.NewSealer(t, 1)))
		s := guardtest.ServeRecorder(t, guard.Handler(guardtest.FailsFirst()))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		seen := guardtest.Seen(t, guard)
		decided := idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusAccepted, Body: guardtest.LargeAnswer}
		for range 3 {
			require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, decided))
		}
		decided.Body = []byte("another")
		require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, decided), idempotency.ErrChanged)
		require.Equal(t, http.StatusAccepted, guardtest.Lookup(t, guard, guardtest.HeldKey).Status)
	})
}

// The result of a function has a size and no status.
func TestLookupOfAFunction(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		guard := guardtest.NewGuard(t, st)
		_, _, err := idempotency.Do(t.Context(), guard, guardtest.HeldKey, func(context.Context) (string, error) { return "done", nil })
		require.NoError(t, err)
		info := guardtest.Lookup(t, guard, guardtest.HeldKey)
		require.Equal(t, store.Completed, info.State)
		require.Zero(t, info.Status)
		require.Positive(t, info.Size)
	})
}
