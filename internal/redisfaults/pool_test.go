package redisfaults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
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

// A run that is longer than its lease keeps it while a storm of other requests queues for
// the few connections of the store's client: each request takes a connection for one round
// trip only.
func TestRedisRenewalsSurviveAStorm(t *testing.T) {
	slow(t)
	t.Parallel()
	const lease = 9 * time.Second
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	proxy.Delay(faultproxy.ToServer, 5*time.Millisecond)
	client := guardtest.RedisClientAt(t, proxy.Addr(), func(o *redis.Options) { o.PoolSize = 2 })
	h := interrupt(nil)
	p := newRedisProcess(t, guardtest.RedisStore(t, client), h, idempotency.WithLease(lease))
	done := h.start(t, p, guardtest.Call{Key: "long"})

	ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
	defer cancel()
	var storm sync.WaitGroup
	for range 30 {
		storm.Go(func() {
			for ctx.Err() == nil {
				_, _ = p.Try(ctx, guardtest.Call{Key: "long"})
			}
		})
	}
	storm.Wait()
	h.goOn()
	require.Equal(t, "run 1", (<-done).Body)
	require.Zero(t, p.events.Count(event.LeaseLost))
	require.EqualValues(t, 1, h.Runs.Load())
}

// An application that uses up the connections of a client which it shares with the store
// keeps the store from renewing. The guard tells the run before another can take its claim,
// and starts nothing new. It records the answer as soon as there is a connection; until
// then nobody sees it. A store with its own client does not notice.
func TestRedisPoolExhausted(t *testing.T) {
	slow(t)
	t.Parallel()
	const lease = 6 * time.Second
	server := redistest.Start(t)
	sideBySide(t, map[string]bool{"shared client": true, "own client": false}, func(t *testing.T, shared bool) {
		key := guardtest.RedisKey()
		application := guardtest.RedisClientAt(t, server.Addr, func(o *redis.Options) { o.PoolSize = 2 })
		store := guardtest.RedisStore(t, application)
		if !shared {
			store = guardtest.RedisAt(t, server)
		}
		h := interrupt(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			if !shared {
				time.Sleep(lease + lease/2) // the lease runs in Redis
				if !op.Valid() {
					t.Error("the claim is not sure any more")
				}
			} else {
				<-r.Context().Done()
				if op.Valid() || !errors.Is(context.Cause(r.Context()), idempotency.ErrLeaseLost) {
					t.Errorf("valid: %v, %v", op.Valid(), context.Cause(r.Context()))
				}
			}
			_, _ = io.WriteString(w, "run 1")
		})
		p := newRedisProcess(t, store, h, idempotency.WithLease(lease))
		done := h.start(t, p, guardtest.Call{Key: key})

		var taken sync.WaitGroup
		giveBack := sync.OnceFunc(func() { server.Do(t, "RPUSH", "queue of "+key, "one", "two") })
		defer giveBack()
		for range 2 {
			taken.Go(func() { application.BLPop(context.WithoutCancel(t.Context()), time.Minute, "queue of "+key) })
		}
		require.Eventually(t, func() bool {
			return application.PoolStats().TotalConns-application.PoolStats().IdleConns >= 2
		}, guardtest.Patience, time.Millisecond)
		h.goOn()
		if shared {
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "new"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		} else {
			require.Equal(t, "run 1", (<-done).Body)
		}
		giveBack()
		taken.Wait()
		require.NoError(t, p.guard.Shutdown(t.Context()))
		other := newRedisProcess(t, guardtest.RedisAt(t, server), h)
		other.requireReplay(t, guardtest.Call{Key: key}, "run 1")
		require.EqualValues(t, 1, h.Runs.Load())
		lost := p.events.Count(event.LeaseLost)
		require.Equal(t, shared, lost == 1, "leases lost: %d", lost)
	})
}

// While replicas are away, each request with a new key is refused, and the guard gives its claim
// back with one call that does not wait for them. Otherwise it would repeat the release, and each
// try would keep a connection for the timeout: recorded answers would get 503 for want of one.
func TestRedisReplaysWithoutReplicas(t *testing.T) {
	t.Parallel()
	const clients, each = 4, 5
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	h := &guardtest.Counter{}
	patient := newRedisProcess(t, guardtest.RedisAt(t, master, idempotency.WithReplicas(1, guardtest.Patience)), h)
	recorded := patient.Do(t, guardtest.Call{Key: "recorded"})
	require.Equal(t, http.StatusCreated, recorded.Status)

	pool := guardtest.RedisClientAt(t, master.Addr, func(o *redis.Options) { o.PoolSize = 2 })
	hasty := newRedisProcess(t, guardtest.RedisStore(t, pool, idempotency.WithReplicas(1, 50*time.Millisecond)), h)
	replica.Pause(t)
	master.ForgetCalls(t)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for n := range each {
				if got, err := hasty.Try(t.Context(), guardtest.Call{Key: fmt.Sprintf("new-%d-%d", client, n)}); err != nil || got.Status != http.StatusServiceUnavailable {
					t.Error("a new key:", got.Status, err)
				}
				if got, err := hasty.Try(t.Context(), guardtest.Call{Key: "recorded"}); err != nil || !got.Replayed() || got.Body != recorded.Body {
					t.Error("a recorded answer:", got.Status, err)
				}
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return hasty.guard.Stats().GivingBack == 0 }, guardtest.Patience, time.Millisecond)
	require.EqualValues(t, 1, h.Runs.Load())
	require.Equal(t, 2*clients*each, master.Calls(t)["wait"], "one for each request, and none for a release")
	replica.Resume(t)
	for client := range clients {
		for n := range each {
			got := patient.Do(t, guardtest.Call{Key: fmt.Sprintf("new-%d-%d", client, n)})
			require.Equal(t, http.StatusCreated, got.Status)
			require.False(t, got.Replayed())
		}
	}
}
