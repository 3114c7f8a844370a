package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A run that is longer than its lease keeps it while a storm of other requests queues
// for the few connections of the store's client: each takes one for one round trip only.
func TestRedisRenewalsSurviveAStorm(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	proxy.Delay(faultproxy.ToServer, 5*time.Millisecond)
	client := redisClientAt(t, proxy.Addr(), func(o *redis.Options) { o.PoolSize = 2 })
	h := interrupt(nil)
	p := newRedisProcess(t, redisStore(t, client), h, idempotency.WithLease(lease))
	done := h.start(t, p, call{key: "long"})

	ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
	defer cancel()
	var storm sync.WaitGroup
	for range 30 {
		storm.Go(func() {
			for ctx.Err() == nil {
				_, _ = p.try(ctx, call{key: "long"})
			}
		})
	}
	storm.Wait()
	h.goOn()
	require.Equal(t, "run 1", (<-done).body)
	require.Zero(t, countKind(p.events, idempotency.EventLeaseLost))
	require.EqualValues(t, 1, h.runs.Load())
}

// An application that keeps all connections of the client that it shares with the store
// keeps the store from renewing. The run is told before anybody else can have its claim,
// nothing new is run, and the answer is recorded all the same as soon as there is a
// connection; until then nobody sees it. With a client of its own the store does not
// notice.
func TestRedisPoolExhausted(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	server := redistest.Start(t)
	sideBySide(t, map[string]bool{"shared client": true, "own client": false}, func(t *testing.T, shared bool) {
		key := redisKey()
		application := redisClientAt(t, server.Addr, func(o *redis.Options) { o.PoolSize = 2 })
		store := redisStore(t, application)
		if !shared {
			store = redisAt(t, server)
		}
		h := interrupt(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			if !shared {
				time.Sleep(lease + lease/2)
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
		done := h.start(t, p, call{key: key})

		var taken sync.WaitGroup
		giveBack := sync.OnceFunc(func() { server.Do(t, "RPUSH", "queue of "+key, "one", "two") })
		defer giveBack()
		for range 2 {
			taken.Go(func() { application.BLPop(context.WithoutCancel(t.Context()), time.Minute, "queue of "+key) })
		}
		require.Eventually(t, func() bool {
			return application.PoolStats().TotalConns-application.PoolStats().IdleConns >= 2
		}, redisPatience, time.Millisecond)
		h.goOn()
		if shared {
			requireProblem(t, p.do(t, call{key: "new"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			requireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		} else {
			require.Equal(t, "run 1", (<-done).body)
		}
		giveBack()
		taken.Wait()
		require.NoError(t, p.guard.Shutdown(t.Context()))
		other := newRedisProcess(t, redisAt(t, server), h)
		other.requireReplay(t, call{key: key}, "run 1")
		require.EqualValues(t, 1, h.runs.Load())
		lost := countKind(p.events, idempotency.EventLeaseLost)
		require.Equal(t, shared, lost == 1, "leases lost: %d", lost)
	})
}
