package redisfaults

import (
	"net/http"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

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
