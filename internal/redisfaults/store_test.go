package redisfaults

import (
	"context"
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

// Each call gives the scripts again to a server that has lost them.
func TestRedisScriptsForgotten(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	for name, s := range map[string]*idempotency.RedisStore{
		"alone":    guardtest.RedisStore(t, guardtest.RedisClient(t, master.Addr)),
		"replicas": guardtest.RedisStore(t, guardtest.RedisClient(t, master.Addr), idempotency.WithReplicas(1, 5*time.Second)),
	} {
		ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
		forget := func() { master.Do(t, "SCRIPT", "FLUSH") }
		forget()
		_, err := s.Claim(ctx, key, c)
		require.NoError(t, err, name)
		forget()
		require.NoError(t, s.SaveStep(ctx, key, c.Owner, "a", []byte("1")), name)
		forget()
		require.NoError(t, s.Renew(ctx, key, c.Owner), name)
		forget()
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}), name)
		forget()
		require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("small"), TTL: time.Hour}), name)
		forget()
		require.NoError(t, s.Forget(ctx, key, store.Seen{Owner: c.Owner, Attempt: 1, State: store.Completed}), name)
		forget()
		require.ErrorIs(t, s.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), store.Settlement{}), idempotency.ErrNotFound, name)
		held := guardtest.RedisKey()
		claimed(t, s, held, holdClaim())
		forget()
		require.Contains(t, keysOf(t, s, holding), held, name)
	}
}

// A server that is out of memory begins no run, under new keys and under those that it has, and settles
// the runs that have begun.
func TestRedisOutOfMemory(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, false)
	server := redistest.Start(t)
	t.Run("server", func(t *testing.T) {
		redisOutOfMemory(t, []string{server.Addr}, server)
	})
	t.Run("cluster", func(t *testing.T) {
		redisOutOfMemory(t, cluster.Addrs(), cluster.Masters...)
	})
}

func redisOutOfMemory(t *testing.T, addrs []string, servers ...*redistest.Server) {
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, addrs...))
	ctx := t.Context()
	claim := func(name string) (string, store.Owner) {
		key, c := guardtest.RedisKey(), guardtest.RedisClaim()
		_, err := s.Claim(ctx, key, c)
		require.NoError(t, err, name)
		return key, c.Owner
	}
	small, smallOwner := claim("small")
	large, largeOwner := claim("large")
	released, releasedOwner := claim("released")
	held, heldOwner := claim("held")
	renewed, renewedOwner := claim("renewed")
	lapsed, lapsedOwner := claim("lapsed")
	lapsedHold, _ := claim("lapsed and held")
	done, doneOwner := claim("done")
	require.NoError(t, s.Complete(ctx, done, doneOwner, store.Completion{Answer: []byte("done"), TTL: time.Hour}))
	for _, server := range servers {
		server.Advance(t, "idem:"+lapsed, 30*time.Second)
		server.Advance(t, "idem:"+lapsedHold, 30*time.Second)
		server.Do(t, "CONFIG", "SET", "maxmemory", "100")
	}

	_, err := s.Claim(ctx, guardtest.RedisKey(), guardtest.RedisClaim())
	require.ErrorIs(t, err, idempotency.ErrStoreFull)

	r := claimed(t, s, done, guardtest.RedisClaim())
	require.Equal(t, "done", string(r.Answer))
	waiting := guardtest.RedisClaim()
	waiting.Watch = true
	r = claimed(t, s, small, waiting)
	require.Equal(t, store.Claimed, r.State)
	require.False(t, r.Mine)
	refused := func(key string, o store.Owner, state store.State) {
		t.Helper()
		again := guardtest.RedisClaim()
		again.Note = []byte("again")
		before := recordOf(t, s, key)
		_, err = s.Claim(ctx, key, again)
		require.ErrorIs(t, err, idempotency.ErrStoreFull)
		after := recordOf(t, s, key)
		require.Equal(t, o, after.Owner)
		require.Equal(t, 1, after.Attempt)
		require.Equal(t, state, after.State)
		require.Equal(t, before.Notes, after.Notes)
		require.LessOrEqual(t, after.TTL, before.TTL)
	}
	refused(lapsed, lapsedOwner, store.Claimed)
	holding := guardtest.RedisClaim()
	holding.Hold = true
	r = claimed(t, s, lapsedHold, holding)
	require.Equal(t, store.Held, r.State)
	require.NoError(t, s.Renew(ctx, renewed, renewedOwner))
	require.NoError(t, s.SaveStep(ctx, renewed, renewedOwner, "a", []byte("1")))
	require.NoError(t, s.Complete(ctx, small, smallOwner, store.Completion{Answer: []byte("small"), TTL: time.Hour}))
	require.NoError(t, s.Complete(ctx, large, largeOwner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
	require.NoError(t, s.Release(ctx, released, releasedOwner, store.Release{}))
	refused(released, releasedOwner, store.Released)
	require.NoError(t, s.Hold(ctx, held, heldOwner, nil))
	require.NoError(t, s.Resolve(ctx, held, guardtest.HeldBy(heldOwner, 1), guardtest.Answered("resolved")))

	for _, server := range servers {
		server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	}
	for key, answer := range map[string]string{small: "small", large: string(guardtest.LargeAnswer), held: "resolved"} {
		require.Equal(t, answer, string(claimed(t, s, key, guardtest.RedisClaim()).Answer))
	}
	for _, key := range []string{released, lapsed} {
		r = claimed(t, s, key, guardtest.RedisClaim())
		require.True(t, r.Mine)
		require.Equal(t, 2, r.Attempt)
	}
	r = recordOf(t, s, renewed)
	require.Equal(t, map[string][]byte{"a": []byte("1")}, r.Steps)
}

// A claim or an answer counts only when a replica has it. If no replica confirms it, the
// caller gets an error, whichever connection its next try uses.
func TestRedisWithReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	// The other master would answer a WAIT at once.
	cluster := redistest.StartCluster(t, 2, true)
	const prefix = "{one slot}:"
	holder := 0
	if cluster.Masters[0].Do(t, "CLUSTER", "KEYSLOT", prefix).(int64) >= 16384/2 {
		holder = 1
	}
	for name, test := range map[string]struct {
		addrs   []string
		replica *redistest.Server
	}{
		"server":  {[]string{master.Addr}, replica},
		"cluster": {cluster.Addrs(), cluster.Replicas[holder]},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			open := func(timeout time.Duration) *idempotency.RedisStore {
				return guardtest.RedisStore(t, guardtest.RedisClient(t, test.addrs...),
					idempotency.WithPrefix(prefix), idempotency.WithReplicas(1, timeout))
			}
			patient, hasty, elsewhere := open(10*time.Second), open(50*time.Millisecond), open(50*time.Millisecond)
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			// A Cluster client first asks an arbitrary node for the list of commands, which
			// must not be the one that sleeps.
			for _, s := range []*idempotency.RedisStore{hasty, elsewhere} {
				require.ErrorIs(t, s.Renew(ctx, key, c.Owner), store.ErrNotOwner)
			}
			r := claimed(t, patient, key, c)
			require.True(t, r.Mine)

			test.replica.Pause(t)
			_, err := elsewhere.Claim(ctx, key, c)
			require.ErrorContains(t, err, "too few replicas", "repeated on another connection")
			r = recordOf(t, hasty, key)
			require.Equal(t, store.Claimed, r.State, "a run that has happened may need it")
			require.ErrorContains(t, hasty.Release(ctx, key, c.Owner, store.Release{}), "too few replicas", "one that has not begun gives it up")

			other, d := guardtest.RedisKey(), guardtest.RedisClaim()
			_, err = hasty.Claim(ctx, other, d)
			require.ErrorContains(t, err, "too few replicas")
			test.replica.Resume(t)

			r = claimed(t, patient, key, d)
			require.Equal(t, 2, r.Attempt)
			test.replica.Pause(t)
			for range 2 {
				require.ErrorContains(t, hasty.Complete(ctx, key, d.Owner, store.Completion{Answer: []byte("answer"), TTL: time.Hour}), "too few replicas")
				require.ErrorContains(t, elsewhere.Complete(ctx, key, d.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}),
					"too few replicas", "repeated on another connection")
			}
			r = claimed(t, hasty, key, guardtest.RedisClaim())
			require.Equal(t, "answer", string(r.Answer), "a replay gives nothing that has to be confirmed")
			test.replica.Resume(t)
			require.NoError(t, patient.Complete(ctx, key, d.Owner, store.Completion{Answer: []byte("answer"), TTL: time.Hour}))
		})
	}
}

// WAIT waits for the writes before it. A store repeats a call when it lost the first reply.
// If the second call found everything done and wrote nothing, its WAIT would confirm
// nothing.
func TestRedisRepeatedCallsWrite(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-ping-replica-period", "3600")
	redistest.StartReplica(t, master)
	s := guardtest.RedisAt(t, master)
	ctx := t.Context()
	c := guardtest.RedisClaim()
	claim := func(key string) error {
		_, err := s.Claim(ctx, key, c)
		return err
	}
	for name, call := range map[string]func(key string) error{
		"Claim":    claim,
		"SaveStep": func(key string) error { return s.SaveStep(ctx, key, c.Owner, "a", []byte("1")) },
		"Complete": func(key string) error {
			return s.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("small"), TTL: time.Hour})
		},
		"Complete large": func(key string) error {
			return s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour})
		},
		"Hold": func(key string) error { return s.Hold(ctx, key, c.Owner, nil) },
		"Resolve": func(key string) error {
			return s.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), guardtest.Answered("by hand"))
		},
	} {
		key := guardtest.RedisKey()
		require.NoError(t, claim(key))
		if name == "Resolve" {
			require.NoError(t, s.Hold(ctx, key, c.Owner, nil))
		}
		require.NoError(t, call(key))
		before := master.Info(t, "replication")["master_repl_offset"]
		require.NoError(t, call(key))
		require.NotEqual(t, before, master.Info(t, "replication")["master_repl_offset"], name)
	}
}

// A failover must not cut a lease short, or another takes over during the run. It must not
// forget a step, or the step begins again. It must not free a held key, or the key runs
// again, and it must not hold a resolved key again, or the answer by hand is lost. Calls
// that do these things wait for the replicas. Calls that a failover can undo without harm
// do not.
func TestRedisWithReplicasKeepsStepsAndHolds(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	open := func(timeout time.Duration) *idempotency.RedisStore {
		return guardtest.RedisStore(t, guardtest.RedisClient(t, master.Addr), idempotency.WithReplicas(1, timeout))
	}
	patient, hasty := open(guardtest.Patience), open(50*time.Millisecond)
	ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
	claimed(t, patient, key, c)
	replica.Pause(t)
	require.ErrorContains(t, hasty.Renew(ctx, key, c.Owner), "too few replicas")
	for range 2 { // repeated on another connection, too
		again := open(50 * time.Millisecond)
		require.ErrorContains(t, again.SaveStep(ctx, key, c.Owner, "a", []byte("1")), "too few replicas")
	}
	for range 2 {
		again := open(50 * time.Millisecond)
		require.ErrorContains(t, again.Hold(ctx, key, c.Owner, nil), "too few replicas")
	}
	replica.Resume(t)
	require.NoError(t, patient.Hold(ctx, key, c.Owner, nil))

	other := guardtest.RedisStore(t, guardtest.RedisClient(t, replica.Addr))
	r := recordOf(t, other, key)
	require.Equal(t, store.Held, r.State)
	require.Equal(t, map[string][]byte{"a": []byte("1")}, r.Steps)

	replica.Pause(t)
	for range 2 {
		again := open(50 * time.Millisecond)
		require.ErrorContains(t, again.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), guardtest.Answered("by hand")), "too few replicas")
	}
	replica.Resume(t)
	require.NoError(t, patient.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), guardtest.Answered("by hand")))
	r, err := other.GetAnswer(ctx, key)
	require.NoError(t, err)
	require.Equal(t, "by hand", string(r.Answer))

	key = guardtest.RedisKey()
	claimed(t, patient, key, c)
	require.NoError(t, patient.Hold(ctx, key, c.Owner, nil))
	replica.Pause(t)
	require.NoError(t, hasty.Resolve(ctx, key, guardtest.HeldBy(c.Owner, 1), store.Settlement{}))
}

// After a Cluster failover the store asks for the new topology. It does not turn to the
// dead master until the client's next regular look, a minute later.
func TestRedisClusterFailover(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string]func(*redistest.Server){
		"refuses connections": func(s *redistest.Server) { s.Kill() },
		"does not answer":     func(s *redistest.Server) { s.Pause(t) },
	}, func(t *testing.T, end func(*redistest.Server)) {
		cluster := redistest.StartCluster(t, 3, true)
		key, s := guardtest.RedisKey(), guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...))
		claimed(t, s, key, guardtest.RedisClaim())
		for _, master := range cluster.Masters {
			slot := master.Do(t, "CLUSTER", "KEYSLOT", "idem:"+key)
			if master.Do(t, "CLUSTER", "COUNTKEYSINSLOT", slot).(int64) == 1 {
				end(master)
			}
		}
		require.Eventually(t, func() bool {
			// Too short for the client to find out by itself that the server is gone.
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			defer cancel()
			_, err := s.Claim(ctx, key, guardtest.RedisClaim())
			return err == nil
		}, 40*time.Second, 100*time.Millisecond)
	})
}

// A hook of the client may fail and leave the commands without a result. That is a failure
// of the store; the zero value of the reply must not be taken for an answer.
func TestRedisHookThatRefuses(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	var commands, pipelines atomic.Bool // whether they are refused; only the error of the call says so
	client := newClient(t, &redis.Options{Addr: master.Addr, ContextTimeoutEnabled: true}, func(ctx context.Context, s sending) error {
		if s.pipeline && pipelines.Load() || !s.pipeline && commands.Load() {
			return guardtest.ErrDown
		}
		return s.next(ctx)
	})
	plain, durable := guardtest.RedisStore(t, client), guardtest.RedisStore(t, client, idempotency.WithReplicas(1, guardtest.Patience))
	ctx, c := t.Context(), guardtest.RedisClaim()
	key, large := guardtest.RedisKey(), guardtest.RedisKey()
	for _, k := range []string{key, large} {
		claimed(t, plain, k, c)
	}
	require.NoError(t, plain.Complete(ctx, large, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))

	pipelines.Store(true)
	_, err := durable.Claim(ctx, key, guardtest.RedisClaim())
	require.ErrorIs(t, err, guardtest.ErrDown)
	_, err = plain.Claim(ctx, large, guardtest.RedisClaim())
	require.ErrorIs(t, err, guardtest.ErrDown, "the answer is read by a command of its own")
	require.ErrorIs(t, durable.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("x"), TTL: time.Hour}), guardtest.ErrDown)
	require.ErrorIs(t, plain.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}), guardtest.ErrDown)
	_, err = plain.GetAnswer(ctx, key)
	require.ErrorIs(t, err, guardtest.ErrDown)
	_, err = plain.List(ctx, store.Query{})
	require.ErrorIs(t, err, guardtest.ErrDown)

	pipelines.Store(false)
	commands.Store(true)
	_, err = plain.Claim(ctx, key, guardtest.RedisClaim())
	require.ErrorIs(t, err, guardtest.ErrDown)
	require.ErrorIs(t, plain.Complete(ctx, key, c.Owner, store.Completion{Answer: []byte("x"), TTL: time.Hour}), guardtest.ErrDown)
	require.ErrorIs(t, plain.Renew(ctx, key, c.Owner), guardtest.ErrDown)
	_, err = plain.Get(ctx, key)
	require.ErrorIs(t, err, guardtest.ErrDown)
}

// A failover that forgets a release under Hold holds a key of which nothing has run.
func TestRedisWithReplicasConfirmsReleases(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	patient := guardtest.RedisAt(t, master, idempotency.WithReplicas(1, guardtest.Patience))
	ctx := t.Context()
	for _, release := range []store.Release{{}, {Undone: true}} {
		key, c := guardtest.RedisKey(), guardtest.RedisClaim()
		c.Hold = true
		claimed(t, patient, key, c)
		replica.Pause(t)
		for range 2 { // repeated on another connection, too
			hasty := guardtest.RedisAt(t, master, idempotency.WithReplicas(1, 50*time.Millisecond))
			require.ErrorContains(t, hasty.Release(ctx, key, c.Owner, release), "too few replicas")
		}
		replica.Resume(t)
		require.NoError(t, patient.Release(ctx, key, c.Owner, release))
		r, err := guardtest.RedisAt(t, replica).Get(ctx, key)
		require.NoError(t, err)
		require.Equal(t, store.Released, r.State)
	}
}
