package idempotency_test

import (
	"bytes"
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

// A network that swallows everything in one direction. What the server has executed
// unheard is a claim without an owner in one of them, and an answer that is recorded
// without its run knowing; in the other nothing has happened. Nobody can tell which.
func TestRedisBlackHole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sideBySide(t, map[string]faultproxy.Direction{
		"to the server": faultproxy.ToServer, "to the client": faultproxy.ToClient,
	}, func(t *testing.T, way faultproxy.Direction) {
		proxy := faultproxy.New(t, server.Addr)
		store := redisStore(t, redisClient(t, proxy.Addr()))
		h, unheard := interrupt(nil), answering(0, "unheard")
		hold := idempotency.WithRecovery(idempotency.Hold)
		a, b := newRedisProcess(t, store, h, hold), newRedisProcess(t, store, unheard, hold)
		running, ghost := call{key: redisKey()}, call{key: redisKey()}
		done := h.start(t, a, running)

		proxy.Hole(way)
		requireProblem(t, b.do(t, ghost), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Zero(t, unheard.runs.Load())
		h.goOn()
		begin := time.Now()
		require.Equal(t, "run 1", (<-done).body)
		require.Less(t, time.Since(begin), 10*time.Second)
		require.Equal(t, 1, countKind(a.events, idempotency.EventRecordingDelayed))

		proxy.Heal()
		b.requireReplay(t, running, "run 1")
		require.EqualValues(t, 1, h.runs.Load())
		got := b.persist(t, ghost) // it is given back, and neither held nor blocked for a lease
		require.Equal(t, "unheard", got.body)
		require.EqualValues(t, 1, unheard.runs.Load())
		for _, p := range []*redisProcess{a, b} {
			require.NoError(t, p.guard.Shutdown(t.Context()))
			require.Zero(t, countKind(p.events, idempotency.EventLeaseLost))
		}
	})
}

// Every message takes a tenth of a second each way: all is slow, and all is right.
func TestRedisSlowNetwork(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	const lease, slowness = 9 * time.Second, 100 * time.Millisecond
	h := answering(lease+time.Second, "done")
	client := redisClient(t, proxy.Addr())
	p := newRedisProcess(t, redisStore(t, client), h,
		idempotency.WithLease(lease), idempotency.WithWait(redisPatience))
	require.NoError(t, client.Ping(t.Context()).Err()) // there is a connection
	proxy.Delay(faultproxy.ToServer, slowness)
	proxy.Delay(faultproxy.ToClient, slowness)
	key := call{key: "k"}
	first, second := p.begin(t, key), p.begin(t, key)
	a, b := <-first, <-second
	require.Equal(t, "done", a.body)
	require.Equal(t, "done", b.body)
	require.NotEqual(t, a.replayed(), b.replayed(), "one has run, and one has waited")
	require.EqualValues(t, 1, h.runs.Load())
	require.Zero(t, countKind(p.events, idempotency.EventLeaseLost))
	require.Zero(t, countKind(p.events, idempotency.EventStoreError))
}

// Idle connections that have died are not found out by requests: those that were reset
// are not used, and those that are silent are given up in time for another try, if the
// client's ReadTimeout leaves any.
func TestRedisStaleConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const connections = 4
	for name, test := range map[string]struct {
		change func(*redis.Options)
		kill   func(*faultproxy.Proxy)
	}{
		"reset": {
			func(o *redis.Options) { o.MaxRetries = -1 },
			func(p *faultproxy.Proxy) { p.Reset() },
		},
		"silent": {
			func(o *redis.Options) { o.ReadTimeout = 200 * time.Millisecond },
			func(p *faultproxy.Proxy) {
				p.Fail(faultproxy.HangReply, connections, func(message []byte) bool {
					return bytes.Contains(message, []byte(idempotency.RedisScripts["claim"]))
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, server.Addr)
			client := redisClientAt(t, proxy.Addr(), func(o *redis.Options) {
				o.MinIdleConns, o.PoolSize = connections, connections
				test.change(o)
			})
			h := &counter{}
			p := newRedisProcess(t, redisStore(t, client), h)
			p.do(t, call{key: redisKey()}) // the server knows the scripts
			require.Eventually(t, func() bool {
				return client.PoolStats().IdleConns >= connections
			}, redisPatience, time.Millisecond)
			test.kill(proxy)
			var requests sync.WaitGroup
			for range connections {
				requests.Go(func() {
					if got := p.attempt(t, call{key: redisKey()}); got.status != http.StatusCreated {
						t.Errorf("%d: %s", got.status, got.body)
					}
				})
			}
			requests.Wait()
			require.EqualValues(t, 1+connections, h.runs.Load())
			require.Zero(t, countKind(p.events, idempotency.EventStoreError))
		})
	}
}
