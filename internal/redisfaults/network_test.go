package redisfaults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// Networks that are slow, silent or reset, and pools without a free connection.

// The network swallows everything in one direction. In one direction, the server executes
// calls whose replies nobody hears: a claim without an owner, and a recorded answer that
// its run does not know about. In the other direction, nothing has happened. No client can
// tell the two apart.
func TestRedisBlackHole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sideBySide(t, map[string]faultproxy.Direction{
		"to the server": faultproxy.ToServer, "to the client": faultproxy.ToClient,
	}, func(t *testing.T, way faultproxy.Direction) {
		proxy := faultproxy.New(t, server.Addr)
		store := guardtest.RedisStore(t, guardtest.RedisClient(t, proxy.Addr()))
		h, unheard := interrupt(nil), guardtest.Answering(0, "unheard")
		hold := idempotency.WithRecovery(idempotency.Hold)
		a, b := newRedisProcess(t, store, h, hold), newRedisProcess(t, store, unheard, hold)
		running, ghost := guardtest.Call{Key: guardtest.RedisKey()}, guardtest.Call{Key: guardtest.RedisKey()}
		done := h.start(t, a, running)

		proxy.Hole(way)
		guardtest.RequireProblem(t, b.Do(t, ghost), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Zero(t, unheard.Runs.Load())
		h.goOn()
		begin := time.Now()
		require.Equal(t, "run 1", (<-done).Body)
		require.Less(t, time.Since(begin), 10*time.Second)
		require.Equal(t, 1, a.events.Count(event.RecordingDelayed))

		proxy.Heal()
		b.requireReplay(t, running, "run 1")
		require.EqualValues(t, 1, h.Runs.Load())
		got := b.persist(t, ghost) // it is given back, and neither held nor blocked for a lease
		require.Equal(t, "unheard", got.Body)
		require.EqualValues(t, 1, unheard.Runs.Load())
		for _, p := range []*redisProcess{a, b} {
			require.NoError(t, p.guard.Shutdown(t.Context()))
			require.Zero(t, p.events.Count(event.LeaseLost))
		}
	})
}

// Every message takes a tenth of a second each way: everything is slow, and everything is
// right.
func TestRedisSlowNetwork(t *testing.T) {
	slow(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	const lease, slowness = 9 * time.Second, 100 * time.Millisecond
	h := guardtest.Answering(lease+time.Second, "done")
	client := guardtest.RedisClient(t, proxy.Addr())
	p := newRedisProcess(t, guardtest.RedisStore(t, client), h,
		idempotency.WithLease(lease), idempotency.WithWait(guardtest.Patience))
	require.NoError(t, client.Ping(t.Context()).Err()) // there is a connection
	proxy.Delay(faultproxy.ToServer, slowness)
	proxy.Delay(faultproxy.ToClient, slowness)
	key := guardtest.Call{Key: "k"}
	first, second := p.Begin(t, key), p.Begin(t, key)
	a, b := <-first, <-second
	require.Equal(t, "done", a.Body)
	require.Equal(t, "done", b.Body)
	require.NotEqual(t, a.Replayed(), b.Replayed(), "one has run, and one has waited")
	require.EqualValues(t, 1, h.Runs.Load())
	require.Zero(t, p.events.Count(event.LeaseLost))
	require.Zero(t, p.events.Count(event.StoreError))
}

// dialledConns are the connections that a client has made.
type dialledConns struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (d *dialledConns) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.conns = append(d.conns, c)
	}
	return c, err
}

func (d *dialledConns) all() []net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.conns)
}

// A request does not have to discover that an idle connection has died. The client does not
// use connections that were reset. It gives up silent ones in time for another try, if its
// ReadTimeout leaves any.
func TestRedisStaleConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const connections = 4
	claim := []byte(redisproto.Digests()["claim"])
	for name, test := range map[string]struct {
		change func(*redis.Options)
		kill   func(*testing.T, *faultproxy.Proxy, []net.Conn)
	}{
		"reset": {
			func(o *redis.Options) { o.MaxRetries = -1 },
			func(t *testing.T, p *faultproxy.Proxy, conns []net.Conn) {
				p.Reset()
				for _, conn := range conns { // each has heard of it
					require.NoError(t, conn.SetReadDeadline(time.Now().Add(guardtest.Patience)))
					_, err := conn.Read(make([]byte, 1))
					require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
				}
			},
		},
		"silent": {
			// Of the two seconds that a guard gives to a claim, this leaves one for another try.
			func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Second, 10 },
			func(_ *testing.T, p *faultproxy.Proxy, _ []net.Conn) {
				p.Fail(faultproxy.HangReply, connections, func(message []byte) bool {
					return bytes.Contains(message, claim)
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, server.Addr)
			var dialled dialledConns
			client := guardtest.RedisClientAt(t, proxy.Addr(), func(o *redis.Options) {
				o.MinIdleConns, o.PoolSize, o.Dialer = connections, connections, dialled.dial
				test.change(o)
			})
			client.AddHook(guardtest.PatientHook{}) // on a busy machine, a try may take longer
			h := &guardtest.Counter{}
			p := newRedisProcess(t, guardtest.RedisStore(t, client), h)
			p.Do(t, guardtest.Call{Key: guardtest.RedisKey()}) // the server knows the scripts
			require.Eventually(t, func() bool {                // the client counts as idle what it is still dialling
				stats := client.PoolStats()
				return stats.IdleConns >= connections && stats.TotalConns >= connections && proxy.Open() >= connections
			}, guardtest.Patience, time.Millisecond)
			test.kill(t, proxy, dialled.all())
			guardtest.Together(connections, func(int) {
				if got := p.Attempt(t, guardtest.Call{Key: guardtest.RedisKey()}); got.Status != http.StatusCreated {
					t.Errorf("%d: %s", got.Status, got.Body)
				}
			})
			require.EqualValues(t, 1+connections, h.Runs.Load())
			require.Zero(t, p.events.Count(event.StoreError))
		})
	}
}

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
	guardtest.Together(30, func(int) {
		for ctx.Err() == nil {
			_, _ = p.Try(ctx, guardtest.Call{Key: "long"})
		}
	})
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
				assert.True(t, op.Valid(), "the claim is not sure any more")
			} else {
				<-r.Context().Done()
				assert.False(t, op.Valid(), "valid: %v, %v", op.Valid(), context.Cause(r.Context()))
				assert.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrLeaseLost, "valid: %v, %v", op.Valid(), context.Cause(r.Context()))
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
	guardtest.Together(clients, func(client int) {
		for n := range each {
			if got, err := hasty.Try(t.Context(), guardtest.Call{Key: fmt.Sprintf("new-%d-%d", client, n)}); err != nil || got.Status != http.StatusServiceUnavailable {
				t.Error("a new key:", got.Status, err)
			}
			if got, err := hasty.Try(t.Context(), guardtest.Call{Key: "recorded"}); err != nil || !got.Replayed() || got.Body != recorded.Body {
				t.Error("a recorded answer:", got.Status, err)
			}
		}
	})
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
