package redisfaults

import (
	"context"
	"maps"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// Masters that die or are cut off, and the replicas that take their place.

// A master dies during a run, and the Sentinels replace it with its replica. With
// WithReplicas no acknowledged record is lost: the new master records the run that was in
// flight, and no key runs twice. The guard refuses requests in between, and until the new
// master has a replica of its own.
func TestRedisSentinelFailover(t *testing.T) {
	slow(t)
	t.Parallel()
	f := redistest.StartFailover(t)
	// With default options, the store uses a copy of the client. It must follow the Sentinels too.
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: f.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	store := guardtest.RedisStore(t, client, idempotency.WithReplicas(1, time.Second))
	require.NoError(t, store.Check(t.Context()))
	h := interrupt(nil)
	p := newRedisProcess(t, store, h)
	recorded, running, later := guardtest.Call{Key: "recorded"}, guardtest.Call{Key: "running"}, guardtest.Call{Key: "later"}
	done := h.start(t, p, running)
	require.Equal(t, "run 2", p.Do(t, recorded).Body)

	f.Master.Kill()
	guardtest.RequireProblem(t, p.Do(t, later), http.StatusServiceUnavailable, problem.StoreUnavailable)
	h.goOn()
	require.Equal(t, "run 1", (<-done).Body)
	p.requireReplay(t, recorded, "run 2")
	guardtest.RequireProblem(t, p.Do(t, later), http.StatusServiceUnavailable, problem.StoreUnavailable)
	require.EqualValues(t, 2, h.Runs.Load())

	redistest.StartReplica(t, f.Replica)
	require.Equal(t, "run 3", p.persist(t, later).Body)
	p.requireReplay(t, running, "run 1")
	require.EqualValues(t, 3, h.Runs.Load())
	require.NoError(t, p.guard.Shutdown(t.Context()))
	require.Zero(t, p.events.Count(event.LeaseLost))
}

// noticeAfter returns how long the servers of a failover test wait for a silent master. The
// variable REDIS_NOTICE_MS replaces the short time of the tests, so that the figures of
// docs/how-to/choosing.md can be measured with the settings that servers really have.
func noticeAfter(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if s := os.Getenv("REDIS_NOTICE_MS"); s != "" {
		ms, err := strconv.Atoi(s)
		require.NoError(t, err)
		return time.Duration(ms) * time.Millisecond
	}
	return short
}

// outage kills a master and returns how long the store grants no claim.
func outage(t *testing.T, store *idempotency.RedisStore, key string, master *redistest.Server) time.Duration {
	t.Helper()
	claim := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := store.Claim(ctx, key, guardtest.RedisClaim())
		return err
	}
	require.NoError(t, claim())
	start := time.Now()
	master.Kill()
	for claim() != nil {
		time.Sleep(20 * time.Millisecond) // a poll
	}
	return time.Since(start)
}

// A failover takes the time after which the servers notice, and some seconds more: for their
// agreement, and until the client has found the new master.
func TestRedisOutageOfAFailover(t *testing.T) {
	t.Parallel()
	const more = 20 * time.Second
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		notice := noticeAfter(t, 500*time.Millisecond)
		f := redistest.StartFailover(t)
		for _, s := range f.Sentinels {
			s.Do(t, "SENTINEL", "SET", redistest.MasterName, "down-after-milliseconds", notice.Milliseconds())
		}
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterName, SentinelAddrs: f.Addrs(), ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = client.Close() })
		took := outage(t, guardtest.RedisStore(t, client), guardtest.RedisKey(), f.Master)
		t.Logf("down-after-milliseconds %d: %v", notice.Milliseconds(), took)
		require.Less(t, took, notice+more)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		notice := noticeAfter(t, time.Second)
		c := redistest.StartCluster(t, 3, true)
		for _, s := range append(append([]*redistest.Server{}, c.Masters...), c.Replicas...) {
			s.Do(t, "CONFIG", "SET", "cluster-node-timeout", notice.Milliseconds())
		}
		key := guardtest.RedisKey()
		master, _ := c.Holder(t, "idem:"+key)
		took := outage(t, guardtest.RedisStore(t, guardtest.RedisClient(t, c.Addrs()...)), key, master)
		t.Logf("cluster-node-timeout %d: %v", notice.Milliseconds(), took)
		require.Less(t, took, notice+more)
	})
}

// A master that is cut off from its replica goes on answering the clients on its side until
// they learn that the replica has replaced it. Whatever it acknowledged in between is lost,
// unless the acknowledgement waited for the replica. docs/explanation/durability.md shows the figures
// of this test.
func TestRedisPartition(t *testing.T) {
	t.Parallel()
	type row struct {
		opts []idempotency.RedisOption
		args []string
	}
	guardtest.Each(t, map[string]row{
		"alone":                 {nil, nil},
		"min-replicas-to-write": {nil, []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}},
		"WithReplicas(1)":       {[]idempotency.RedisOption{idempotency.WithReplicas(1, 500*time.Millisecond)}, nil},
	}, func(t *testing.T, test row) {
		master := redistest.Start(t, test.args...)
		link := faultproxy.New(t, master.Addr)
		replica := redistest.StartReplicaVia(t, link.Addr())
		store := guardtest.RedisAt(t, master, test.opts...)
		patient, cancel := context.WithTimeout(t.Context(), guardtest.Patience)
		defer cancel()
		before := acknowledge(patient, store, 200)
		require.NotEmpty(t, before)

		link.Hole(faultproxy.ToServer)
		link.Hole(faultproxy.ToClient)
		apart, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		during := acknowledge(apart, store, -1)
		replica.Do(t, "REPLICAOF", "NO", "ONE")

		successor := guardtest.RedisAt(t, replica)
		lost := countLost(t, successor, before)
		t.Logf("acknowledged before the partition: %d lost of %d", lost, len(before))
		if test.opts != nil {
			require.Zero(t, lost)
			require.Empty(t, during)
			return
		}
		lost = countLost(t, successor, during)
		t.Logf("acknowledged during the partition: %d lost of %d", lost, len(during))
		require.NotEmpty(t, during)
		require.Equal(t, len(during), lost)
	})
}

// A run outlasts its lease by renewals. Renewals that only a cut-off master knows about
// protect nothing once the replica has replaced it. By then the run is no longer sure of
// its lease.
func TestRedisPartitionDuringRun(t *testing.T) {
	slow(t)
	t.Parallel()
	master := redistest.Start(t)
	link := faultproxy.New(t, master.Addr)
	replica := redistest.StartReplicaVia(t, link.Addr())
	store := guardtest.RedisAt(t, master, idempotency.WithReplicas(1, time.Second))
	patient, cancel := context.WithTimeout(t.Context(), guardtest.Patience)
	defer cancel()
	require.NotEmpty(t, acknowledge(patient, store, 1)) // the replica answers
	var runs [3]*idempotency.Operation
	h := interrupt(nil)
	pass := h.Handler
	h.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
		runs[run], _ = idempotency.FromContext(r.Context())
		runs[run].SetOutcome(idempotency.NotExecuted) // there is no replica left to record an answer
		pass(w, r, run)
	}
	lease := idempotency.WithLease(6 * time.Second)
	a, b := newRedisProcess(t, store, h, lease), newRedisProcess(t, guardtest.RedisAt(t, replica), h, lease)
	h.start(t, a, guardtest.Call{Key: "running"})
	require.True(t, runs[1].Valid())

	link.Hole(faultproxy.ToServer)
	link.Hole(faultproxy.ToClient)
	replica.Do(t, "REPLICAOF", "NO", "ONE")
	require.Equal(t, "run 2", b.persist(t, guardtest.Call{Key: "running"}).Body)
	require.Equal(t, 2, runs[2].Attempt())
	require.False(t, runs[1].Valid())
}

// A master dies under load, and its replica replaces it with everything it had received.
func TestRedisMasterKilledUnderLoad(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string][]idempotency.RedisOption{
		"alone":           nil,
		"WithReplicas(1)": {idempotency.WithReplicas(1, 5*time.Second)},
	}, func(t *testing.T, opts []idempotency.RedisOption) {
		master := redistest.Start(t)
		link := faultproxy.New(t, master.Addr)
		replica := redistest.StartReplicaVia(t, link.Addr())
		link.Delay(faultproxy.ToClient, 10*time.Millisecond) // another data centre
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		store := guardtest.RedisAt(t, master, opts...)
		acknowledged := acknowledge(ctx, store, 50)
		time.AfterFunc(time.Second, func() { master.Kill(); cancel() })
		maps.Copy(acknowledged, acknowledge(ctx, store, -1))
		replica.Do(t, "REPLICAOF", "NO", "ONE")
		lost := countLost(t, guardtest.RedisAt(t, replica), acknowledged)
		t.Logf("%d of %d acknowledged claims lost", lost, len(acknowledged))
		require.NotEmpty(t, acknowledged)
		if opts != nil {
			require.Zero(t, lost)
		}
	})
}
