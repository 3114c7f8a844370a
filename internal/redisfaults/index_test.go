package redisfaults

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// holding asks for the index.
var holding = store.Query{Holding: true}

// keysOf returns the keys of the records that the store lists.
func keysOf(t *testing.T, s store.Lister, q store.Query) []string {
	t.Helper()
	keys := []string{}
	for _, e := range guardtest.List(t, s, q) {
		keys = append(keys, e.Key)
	}
	return keys
}

func holdClaim() store.Claim {
	c := guardtest.RedisClaim()
	c.Hold = true
	return c
}

// storeBefore returns a store that calls a function once, before it sends the script.
func storeBefore(t *testing.T, server *redistest.Server, script string, call func() error) *idempotency.RedisStore {
	t.Helper()
	digest, called := redisproto.Digests()[script], atomic.Bool{}
	client := newClient(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}, func(ctx context.Context, s sending) error {
		if args := s.cmds[0].Args(); !s.pipeline && len(args) > 1 && args[1] == digest && !called.Swap(true) {
			if err := call(); err != nil {
				return s.fail(err)
			}
		}
		return s.next(ctx)
	})
	return guardtest.RedisStore(t, client)
}

// A claim that says Hold costs one command more, which also takes out what was settled before. No
// other call costs more on such a route, and no route without Hold pays anything.
func TestRedisRoundTripsOfAHold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	ctx, key, c, d := t.Context(), guardtest.RedisKey(), holdClaim(), holdClaim()
	claim := func(key string, c store.Claim) { _, err := s.Claim(ctx, key, c); require.NoError(t, err) }
	evals := func(call func()) int {
		server.ForgetCalls(t)
		call()
		calls := server.Calls(t)
		return calls["evalsha"] + calls["eval"]
	}
	warm := holdClaim()
	claim("warm", warm)
	require.NoError(t, s.Renew(ctx, "warm", warm.Owner))
	require.NoError(t, s.Complete(ctx, "warm", warm.Owner, store.Completion{TTL: time.Hour}))

	require.Equal(t, 2, evals(func() { claim(key, c) }), "claim")
	require.Equal(t, []string{key}, keysOf(t, s, holding))
	require.Equal(t, 2, evals(func() { claim(key, c) }), "claim repeated")
	require.Equal(t, 1, evals(func() { claim(key, d) }), "conflict")
	require.Equal(t, 1, evals(func() { require.NoError(t, s.Renew(ctx, key, c.Owner)) }), "renewal")
	require.Equal(t, 1, evals(func() {
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}))
	}), "complete")
	require.Equal(t, 1, evals(func() { claim(key, d) }), "replay")
	require.Equal(t, 2, evals(func() { claim("other", d) }), "another claim")
	require.EqualValues(t, 1, server.Do(t, "ZCARD", "idem:"+redisproto.IndexKey), "what is settled left with it")
	require.Equal(t, 1, evals(func() { require.NoError(t, s.Hold(ctx, "other", d.Owner, nil)) }), "hold")
	require.Equal(t, 1, evals(func() {
		require.NoError(t, s.Complete(ctx, "other", d.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
	}), "complete with a large answer")
	claim("last", holdClaim())
	require.EqualValues(t, 1, server.Do(t, "ZCARD", "idem:"+redisproto.IndexKey))

	rerun := guardtest.RedisClaim()
	require.Equal(t, 1, evals(func() { claim("rerun", rerun) }), "claim without Hold")
	require.Equal(t, 2, evals(func() { require.NoError(t, s.Hold(ctx, "rerun", rerun.Owner, nil)) }), "hold without Hold")
}

// The process dies after its claim was granted and before it is in the index. Nothing has run. The
// key is held when the lease has ended, and a list of all records shows it.
func TestRedisClaimThatIsNotInTheIndexIsListed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	killed := errors.New("killed")
	s := storeBefore(t, server, "enter", func() error { return killed })
	key, c := guardtest.RedisKey(), holdClaim()
	_, err := s.Claim(t.Context(), key, c)
	require.ErrorIs(t, err, killed)
	require.Empty(t, keysOf(t, s, holding))
	server.Advance(t, "idem:", c.Lease)
	require.Equal(t, []string{key}, keysOf(t, s, store.Query{States: []store.State{store.Held}}))
}

// Nobody runs under a claim that is not in the index, because nobody would find it if its process
// died. The claim is given back, and the next request runs.
func TestRedisNobodyRunsOutsideTheIndex(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string]error{
		"no reply": errors.New("reset"),
		"OOM":      serverError("OOM command not allowed when used memory > 'maxmemory'."), // not a refusal of the claim
		"foreign":  serverError("WRONGTYPE Operation against a key holding the wrong kind of value"),
	}, func(t *testing.T, failure error) {
		s := storeBefore(t, redistest.Start(t), "enter", func() error { return failure })
		var indexed []string
		key := guardtest.Call{Key: "k"}
		h := &guardtest.Counter{Handler: func(http.ResponseWriter, *http.Request, int64) { indexed = keysOf(t, s, holding) }}
		p := newRedisProcess(t, s, h, idempotency.WithRecovery(idempotency.Hold))
		guardtest.RequireProblem(t, p.Do(t, key), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Zero(t, h.Runs.Load())
		require.Equal(t, http.StatusOK, p.persist(t, key).Status, "and not a held key")
		require.EqualValues(t, 1, h.Runs.Load())
		require.Len(t, indexed, 1, "the claim is in the index while the handler runs")
	})
}

// A reader has found that a claim is settled. Before it takes the claim out, the key is claimed
// again, by the owner that the operator has given it back to or by another one.
func TestRedisReaderLeavesAClaimThatHasJustBeenEntered(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	for name, again := range map[string]func(store.Claim) store.Claim{
		"by its owner":     func(c store.Claim) store.Claim { return c },
		"by another owner": func(store.Claim) store.Claim { return holdClaim() },
	} {
		ctx, key, c := t.Context(), guardtest.RedisKey(), holdClaim()
		claimed(t, s, key, c)
		require.NoError(t, s.Hold(ctx, key, c.Owner, nil))
		r := recordOf(t, s, key)
		require.NoError(t, s.Resolve(ctx, key, r.Seen(), store.Settlement{}))
		called := false
		reader := storeBefore(t, server, "drop", func() error {
			called = true
			r, err := s.Claim(ctx, key, again(c))
			require.True(t, r.Mine)
			return err
		})
		keysOf(t, reader, holding)
		require.True(t, called)
		require.Contains(t, keysOf(t, s, holding), key, name)
		require.Contains(t, keysOf(t, s, holding), key, name)
	}
}

// A server that is out of memory begins no run. A run that has begun may be held, and that gets into the
// index too.
func TestRedisFullServerKeepsItsIndex(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	ctx := t.Context()
	held, c := guardtest.RedisKey(), guardtest.RedisClaim()
	claimed(t, s, held, c)
	server.Do(t, "CONFIG", "SET", "maxmemory", "100")
	_, err := s.Claim(ctx, guardtest.RedisKey(), holdClaim())
	require.ErrorIs(t, err, idempotency.ErrStoreFull)
	require.NoError(t, s.Hold(ctx, held, c.Owner, nil))
	require.Equal(t, []string{held}, keysOf(t, s, holding))
}

// What is in the index and cannot be read is neither shown nor taken out: nobody knows whether it is
// settled.
func TestRedisIndexKeepsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, old := range map[string]bool{"as the server says it": false, "as Redis 6.2 says it": true} {
		t.Run(name, func(t *testing.T) {
			client := guardtest.RedisClient(t, server.Addr)
			if old {
				client.AddHook(hook(oldWords))
			}
			indexKeepsWhatCannotBeRead(t, server, guardtest.RedisStore(t, client))
		})
	}
}

func indexKeepsWhatCannotBeRead(t *testing.T, server *redistest.Server, s *idempotency.RedisStore) {
	server.Do(t, "FLUSHALL")
	sound, damaged, foreign := guardtest.RedisKey(), guardtest.RedisKey(), guardtest.RedisKey()
	for _, key := range []string{damaged, foreign, sound} {
		claimed(t, s, key, holdClaim())
	}
	header := server.Do(t, "HGET", "idem:"+damaged, "m")
	server.Do(t, "HSET", "idem:"+damaged, "m", "\x01 damaged")
	server.Do(t, "DEL", "idem:"+foreign)
	server.Do(t, "SET", "idem:"+foreign, "x")
	for range 2 {
		require.Equal(t, []string{damaged, foreign, sound}, keysOf(t, s, holding), "nobody knows that the two are settled")
	}
	page, err := s.List(t.Context(), holding)
	require.NoError(t, err)
	require.Equal(t, []store.Record{store.Unreadable, store.Unreadable}, []store.Record{page.Entries[0].Record, page.Entries[1].Record})
	server.Do(t, "HSET", "idem:"+damaged, "m", header)
	require.Equal(t, []string{damaged, foreign, sound}, keysOf(t, s, holding))
}

// oldWords puts before the error of a script what Redis 6.2 puts there.
func oldWords(ctx context.Context, s sending) error {
	err := s.next(ctx)
	for _, cmd := range s.cmds {
		if s.pipeline && redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE") {
			err = serverError("ERR Error running script (call to f_0): @user_script:8: " + cmd.Err().Error())
			cmd.SetErr(err)
		}
	}
	return err
}

// A listing walks through the masters of a Cluster one after another. When they are other ones, its
// cursor leads nowhere, and says so.
func TestRedisCursorOfOtherMasters(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, false)
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...))
	var want []string
	for range 50 {
		want = append(want, guardtest.RedisKey())
		claimed(t, s, want[len(want)-1], holdClaim())
	}
	for _, limit := range []int{1, 3, 10, 1000} {
		require.Subset(t, keysOf(t, s, store.Query{Limit: limit}), want)
		require.Equal(t, want, keysOf(t, s, store.Query{Limit: limit, Holding: true}))
	}
	page, err := s.List(t.Context(), store.Query{Limit: 1})
	require.NoError(t, err)
	single := guardtest.RedisAt(t, redistest.Start(t))
	_, err = single.List(t.Context(), store.Query{Cursor: page.Next})
	require.ErrorIs(t, err, store.ErrBadCursor)
	mark, rest, _ := strings.Cut(page.Next, ".")
	for _, cursor := range []string{mark + "." + strings.Replace(rest, "0.", "3.", 1), mark + ".-1.0", mark + ".0.-1"} {
		_, err = s.List(t.Context(), store.Query{Cursor: cursor})
		require.ErrorIs(t, err, store.ErrBadCursor, cursor)
	}
}

// The index of a store is not one of its records, and neither is a name that no key can make.
func TestRedisListPassesOverTheIndex(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := guardtest.RedisAt(t, server)
	key := guardtest.RedisKey()
	claimed(t, s, key, holdClaim())
	server.Do(t, "COPY", "idem:"+key, "idem:not a key")
	for _, limit := range []int{1, 100} {
		found := keysOf(t, s, store.Query{Limit: limit})
		require.Equal(t, []string{key}, slices.Compact(found))
	}
}
