package redisfaults

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	peer "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// The slot of a record moves to another server during a run, one stage at a time. At each
// stage the run records a step and keeps its claim, the guard refuses duplicates, and other
// runs begin and end. The store uses the documented account.
func TestRedisSlotMoves(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string][]idempotency.RedisOption{
		"alone":    nil,
		"replicas": {idempotency.WithReplicas(1, time.Minute)},
	}, func(t *testing.T, opts []idempotency.RedisOption) {
		cluster := redistest.StartCluster(t, 2, opts != nil)
		const prefix = "{slot}:"
		account := documentedAccount(t)
		for _, purpose := range []string{"a Cluster", "a Cluster whose slots move", "`WithReplicas`"} {
			account = append(account, documentedAddition(t, purpose)...)
		}
		for i, word := range account {
			account[i] = strings.Replace(word, "idem:", prefix, 1)
		}
		open := func() *idempotency.RedisStore {
			client := redisAccount(t, append(cluster.Masters, cluster.Replicas...), account)
			return guardtest.RedisStore(t, client, append(opts, idempotency.WithPrefix(prefix))...)
		}
		stages := []string{"before", "begun", "keys moved", "moved"}
		reached := make(chan string)
		done := make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			for stage := range reached {
				_, err := idempotency.Step(r.Context(), stage, func(context.Context) (string, error) { return stage, nil })
				if err != nil {
					t.Error(stage, err)
				}
				done <- struct{}{}
			}
			_, _ = io.WriteString(w, "moved")
		}}
		small, large := guardtest.Answering(0, "small"), guardtest.Answering(0, strings.Repeat("large ", 5000))
		p := newRedisProcess(t, open(), h)
		answer := p.Begin(t, guardtest.Call{Key: "moving"})
		end := sync.OnceFunc(func() { close(reached) })
		defer end() // also when the test fails, or the run would never end
		var move *redistest.Move
		for _, stage := range stages {
			switch stage {
			case "begun":
				move = cluster.Move(t, prefix)
			case "keys moved":
				move.Keys(t)
			case "moved":
				move.End(t)
			}
			reached <- stage
			<-done
			// One client that has learned nothing yet, and one that has seen every
			// stage.
			for who, st := range map[string]*idempotency.RedisStore{"fresh": open(), "old": p.store} {
				for what, h := range map[string]*guardtest.Counter{"small": small, "large": large} {
					other := newRedisProcess(t, st, h)
					guardtest.RequireProblem(t, other.Do(t, guardtest.Call{Key: "moving"}), http.StatusConflict, problem.InFlight)
					key := guardtest.Call{Key: strings.ReplaceAll(stage+"-"+who+"-"+what, " ", "-")}
					got := other.persist(t, key)
					require.Equal(t, http.StatusOK, got.Status, "%s, %s, %s: %s", stage, who, what, got.Body)
					other.requireReplay(t, key, got.Body)
					require.Zero(t, other.events.Count(event.StoreError), "%s, %s, %s", stage, who, what)
				}
			}
		}
		end()
		require.Equal(t, "moved", (<-answer).Body)
		p.requireReplay(t, guardtest.Call{Key: "moving"}, "moved")
		require.EqualValues(t, 1, h.Runs.Load())
		require.Zero(t, p.events.Count(event.StoreError))
		require.EqualValues(t, 2*len(stages), small.Runs.Load())
		require.EqualValues(t, 2*len(stages), large.Runs.Load())
	})
}

// When no server answers for a slot, only its keys suffer: the guard refuses them and runs
// nothing. A run that had begun is recorded when a server answers for the slot again.
func TestRedisSlotNotServed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, false)
	const prefix = "{one slot}:"
	holder, other := cluster.Holder(t, prefix)
	slot := holder.Do(t, "CLUSTER", "KEYSLOT", prefix)
	open := func(prefix string) *idempotency.RedisStore {
		return guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...), idempotency.WithPrefix(prefix))
	}
	h, unused := interrupt(nil), &guardtest.Counter{}
	a, b := newRedisProcess(t, open(prefix), h), newRedisProcess(t, open(prefix), unused)
	running, later := guardtest.Call{Key: "running"}, guardtest.Call{Key: "later"}
	done := h.start(t, a, running)

	holder.Do(t, "CLUSTER", "DELSLOTS", slot)
	require.Eventually(t, func() bool { // the other server goes on sending clients to this one
		_, err := open(prefix).Claim(t.Context(), guardtest.RedisKey(), guardtest.RedisClaim())
		return err != nil && strings.Contains(err.Error(), "CLUSTERDOWN")
	}, guardtest.Patience, 10*time.Millisecond)
	guardtest.RequireProblem(t, b.Do(t, later), http.StatusServiceUnavailable, problem.StoreUnavailable)
	require.Zero(t, unused.Runs.Load())
	for key := guardtest.RedisKey(); ; key = guardtest.RedisKey() { // one on the other server
		if holder, _ := cluster.Holder(t, "idem:"+key); holder == other {
			_, err := open("idem:").Claim(t.Context(), key, guardtest.RedisClaim())
			require.NoError(t, err)
			break
		}
	}
	h.goOn()
	require.Equal(t, "run 1", (<-done).Body)
	require.Equal(t, 1, a.events.Count(event.RecordingDelayed))

	holder.Do(t, "CLUSTER", "ADDSLOTS", slot)
	require.NoError(t, a.guard.Shutdown(t.Context()))
	b.requireReplay(t, running, "run 1")
	require.Equal(t, http.StatusCreated, b.persist(t, later).Status)
	require.EqualValues(t, 1, h.Runs.Load())
}

// The master that holds a record is killed during the run. Its replica continues with
// everything it had received: the run is recorded, and nothing runs twice.
func TestRedisClusterFailoverDuringRun(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, true)
	prefix := idempotency.WithPrefix("{one slot}:")
	holder, _ := cluster.Holder(t, "{one slot}:")
	h := interrupt(nil)
	p := newRedisProcess(t, guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...), prefix), h)
	recorded, running, later := guardtest.Call{Key: "recorded"}, guardtest.Call{Key: "running"}, guardtest.Call{Key: "later"}
	done := h.start(t, p, running)
	require.Equal(t, "run 2", p.Do(t, recorded).Body)
	// A replica applies writes in order: when it has this one, it has the others too.
	last := guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...), prefix, idempotency.WithReplicas(1, guardtest.Patience))
	claimed(t, last, guardtest.RedisKey(), guardtest.RedisClaim())

	holder.Kill()
	guardtest.RequireProblem(t, p.Do(t, later), http.StatusServiceUnavailable, problem.StoreUnavailable)
	h.goOn()
	require.Equal(t, "run 1", (<-done).Body)
	require.Equal(t, "run 3", p.persist(t, later).Body)
	p.requireReplay(t, recorded, "run 2")
	p.requireReplay(t, running, "run 1")
	require.EqualValues(t, 3, h.Runs.Load())
	require.Zero(t, p.events.Count(event.LeaseLost))
}

// An application may let its Cluster client read from replicas. The store still reads
// records from their master, because a replica may not have them yet.
func TestRedisReadsTheMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, true)
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(), ReadOnly: true, ContextTimeoutEnabled: true,
		ReadTimeout: time.Minute, // or it would turn to the master in the end
	})
	t.Cleanup(func() { _ = client.Close() })
	s := guardtest.RedisStore(t, client)
	ctx, key, c := t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
	// A read of the program's own goes to a replica, once the client knows it and it has loaded.
	require.Eventually(t, func() bool {
		client.ReloadState(ctx)
		before := readsOfReplicas(ctx, client)
		_ = client.HLen(ctx, "idem:"+key).Err()
		return before >= 0 && readsOfReplicas(ctx, client) > before
	}, guardtest.Patience, 100*time.Millisecond)
	require.ErrorIs(t, s.Renew(ctx, key, c.Owner), store.ErrNotOwner)
	for _, replica := range cluster.Replicas {
		replica.Pause(t)
	}
	claimed(t, s, key, c)
	require.NoError(t, s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))
	ctx, cancel := context.WithTimeout(ctx, guardtest.Patience)
	defer cancel()
	r, err := s.Claim(ctx, key, guardtest.RedisClaim())
	require.NoError(t, err)
	require.Equal(t, string(guardtest.LargeAnswer), string(r.Answer))
	r, err = s.Get(ctx, key)
	require.NoError(t, err)
	require.Equal(t, store.Completed, r.State)
	// From an old state of the record, the claim would look settled, and leave the index.
	held := guardtest.RedisKey()
	_, err = s.Claim(ctx, held, holdClaim())
	require.NoError(t, err)
	page, err := s.List(ctx, holding)
	require.NoError(t, err)
	require.Len(t, page.Entries, 1)
}

// readsOfReplicas returns how many times HLEN was called on the two replicas of a Cluster, or -1 if
// not both answer.
func readsOfReplicas(ctx context.Context, client *redis.ClusterClient) int {
	var known, calls atomic.Int64
	_ = client.ForEachSlave(ctx, func(ctx context.Context, replica *redis.Client) error {
		stats, err := replica.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		known.Add(1)
		var n int64
		_, _ = fmt.Sscanf(stats["Commandstats"]["cmdstat_hlen"], "calls=%d", &n)
		calls.Add(n)
		return nil
	})
	if known.Load() != 2 {
		return -1
	}
	return int(calls.Load())
}

// List finds the records of a slot that is moving.
func TestRedisListWhileASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 2, false)
	const prefix = "{one slot}:"
	s := guardtest.RedisStore(t, guardtest.RedisClient(t, cluster.Addrs()...), idempotency.WithPrefix(prefix))
	var want []string
	for range 3 {
		want = append(want, guardtest.RedisKey())
		claimed(t, s, want[len(want)-1], guardtest.RedisClaim())
	}
	requireListed := func(when string) {
		t.Helper()
		var got []string
		for _, e := range guardtest.List(t, s, store.Query{}) {
			got = append(got, e.Key)
		}
		require.ElementsMatch(t, want, got, when)
	}
	requireListed("before")
	move := cluster.Move(t, prefix)
	requireListed("begun")
	move.Keys(t)
	requireListed("keys moved")
	move.End(t)
	requireListed("moved")
}

// In a redirection, Redis writes an IPv6 address without brackets.
func TestRedisSlotMovesToIPv6(t *testing.T) {
	t.Parallel()
	to := miniredis.NewMiniRedis()
	if err := to.StartAddr("[::1]:0"); err != nil {
		t.Skip(err)
	}
	t.Cleanup(to.Close)
	_, port, err := net.SplitHostPort(to.Addr())
	require.NoError(t, err)
	from := miniredis.RunT(t)
	for server, script := range map[*miniredis.Miniredis]func(*peer.Peer) bool{
		from: func(c *peer.Peer) bool { c.WriteError("ASK 1 ::1:" + port); return true },
		to:   func(*peer.Peer) bool { return false },
	} {
		server.Server().SetPreHook(func(c *peer.Peer, cmd string, _ ...string) bool {
			switch strings.ToUpper(cmd) {
			case "EVAL", "EVALSHA":
				return script(c)
			case "ASKING":
				c.WriteOK()
				return true
			case "WAIT":
				c.WriteInt(1)
				return true
			}
			return false
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: from.Addr()}}}}, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	s := guardtest.RedisStore(t, client, idempotency.WithReplicas(1, time.Second))
	require.True(t, claimed(t, s, guardtest.RedisKey(), guardtest.RedisClaim()).Mine)
}
