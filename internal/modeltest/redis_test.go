package modeltest

import (
	"context"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/redistest"
)

// The clock of miniredis moves only when a test moves it, so leases end to the millisecond,
// however busy the machine is.
func TestRedisStoreIsLinearizableOnMiniredis(t *testing.T) {
	server := miniredis.RunT(t)
	// The clock is between two moments, because clients move it while others make calls.
	var begun, done atomic.Int64
	read := func(passed *atomic.Int64) func() time.Duration {
		return func() time.Duration { return time.Duration(passed.Load()) }
	}
	s := redisSetting(t, server.Addr(), 8)
	s.clock = clock{early: read(&done), late: read(&begun)}
	s.pause = func(d time.Duration) {
		d = d.Truncate(time.Millisecond)
		begun.Add(int64(d))
		server.FastForward(d)
		done.Add(int64(d))
	}
	s.calls = 4000
	s.run(newSeed(t)).requireLinearizable(t, common...)
}

// The clients share nothing but the server, like those of several processes.
func TestRedisStoreIsLinearizable(t *testing.T) {
	server := redistest.Start(t)
	s := redisSetting(t, server.Addr, 8)
	s.run(newSeed(t)).requireLinearizable(t, common...)
}

func TestRedisStoreIsLinearizableWhenCallsAreLost(t *testing.T) {
	for name, retries := range map[string]int{"retries": 3, "no retries": -1} {
		t.Run(name, func(t *testing.T) {
			proxy := faultproxy.New(t, redistest.Start(t).Addr)
			s := redisSetting(t, proxy.Addr(), 5, func(o *redis.Options) { o.MaxRetries = retries })
			reliable := s.perform
			s.perform = func(client int, rng *rand.Rand, c call) (reply, int) {
				// Chance decides whose message it is.
				switch rng.IntN(100) {
				case 0:
					proxy.Reset()
				case 1, 2:
					proxy.Fail(faultproxy.LoseRequest, 1, nil)
				case 3, 4, 5:
					proxy.Fail(faultproxy.LoseReply, 1, nil)
				case 6:
					proxy.Fail(faultproxy.CutReply, 1, nil)
				}
				return reliable(client, rng, c)
			}
			s.run(newSeed(t)).requireLinearizable(t, common...)
			require.Greater(t, proxy.Fired(), s.calls/50)
		})
	}
}

// redisSetting is a setting whose clients each have a store and connections of their own.
func redisSetting(t *testing.T, addr string, clients int, edits ...func(*redis.Options)) setting {
	t.Helper()
	stores := make([]fullStore, clients)
	lost := make([]atomic.Int64, clients)
	for i := range clients {
		o := &redis.Options{
			Addr: addr, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 2 * time.Millisecond,
			Dialer: dialer(&lost[i]),
		}
		for _, edit := range edits {
			edit(o)
		}
		client := redis.NewClient(o)
		s := idempotency.NewRedisStore(client)
		t.Cleanup(func() {
			_ = s.Close()
			_ = client.Close()
		})
		stores[i] = s
	}
	return setting{
		clients: clients, calls: 2500, lease: 20 * time.Millisecond, large: true,
		// Redis counts whole milliseconds, which do not begin with those of our clock.
		clock: since(3 * time.Millisecond), pause: time.Sleep,
		perform: func(client int, _ *rand.Rand, c call) (got reply, again int) {
			before := lost[client].Load()
			got = perform(t.Context(), stores[client], c)
			again = int(lost[client].Load() - before)
			if got.lost {
				again = max(again, 1)
			}
			return got, again
		},
	}
}

// dialer makes connections and counts those that fail. A client sends a command again
// because its connection has failed.
func dialer(failed *atomic.Int64) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{TCPConn: c.(*net.TCPConn), failed: failed}, nil
	}
}

type countedConn struct {
	*net.TCPConn

	failed  *atomic.Int64
	counted atomic.Bool
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.note(err)
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.note(err)
	return n, err
}

func (c *countedConn) note(err error) {
	if err != nil && !c.counted.Swap(true) {
		c.failed.Add(1)
	}
}
