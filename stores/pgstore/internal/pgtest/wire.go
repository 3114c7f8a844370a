package pgtest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Wire counts the round trips of connections, and can make each of them longer. A round trip
// begins with the first bytes to the server after bytes from it, so that what a client sends at
// once is one, however many statements it has.
type Wire struct {
	trips atomic.Int64
	delay time.Duration
}

// NewWire returns a wire on which each round trip takes longer by the delay.
func NewWire(delay time.Duration) *Wire { return &Wire{delay: delay} }

// Count returns how many round trips f makes.
func (w *Wire) Count(f func()) int64 {
	before := w.trips.Load()
	f()
	return w.trips.Load() - before
}

// Pool returns a pool of connections that go over the wire, which is closed with the test. It has
// at most that many, and sends statements in the mode.
func (w *Wire) Pool(t testing.TB, dsn string, mode pgx.QueryExecMode, conns int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = conns
	// A connection that has been idle is not asked for a sign of life, which would be a round trip.
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	cfg.ConnConfig.DefaultQueryExecMode = mode
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: conn, wire: w}, nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A wireConn is one connection of a wire.
type wireConn struct {
	net.Conn
	wire *Wire

	mu   sync.Mutex
	sent bool // and nothing was received since
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	begins := !c.sent
	c.sent = true
	c.mu.Unlock()
	if begins {
		c.wire.trips.Add(1)
		time.Sleep(c.wire.delay)
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.sent = false
		c.mu.Unlock()
	}
	return n, err
}
