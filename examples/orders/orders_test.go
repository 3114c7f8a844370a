//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/examples/orders/db"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/pgserver"
)

// A home is what a service leaves when it dies.
type home struct {
	dir  string
	args []string
	db   *database // as the test sees it
}

// homes make an empty home on each database.
var homes = map[string]func(t *testing.T) home{
	"SQLite": func(t *testing.T) home {
		h := home{dir: t.TempDir()}
		var err error
		h.db, err = openSQLite(t.Context(), h.dir, false)
		return h.opened(t, err)
	},
	"PostgreSQL": func(t *testing.T) home {
		server := pgserver.Shared(t)
		name := fmt.Sprintf("orders_%d", databases.Add(1))
		conn, err := pgx.Connect(t.Context(), server.DSN)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "CREATE DATABASE "+name)
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
		dsn := strings.Replace(server.DSN, "/postgres?", "/"+name+"?", 1)
		h := home{dir: t.TempDir(), args: []string{"-postgres", dsn}}
		h.db, err = openPostgres(t.Context(), dsn, false)
		return h.opened(t, err)
	},
}

var databases atomic.Int64

func (h home) opened(t *testing.T, err error) home {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.db.close()) })
	h.args = append(h.args, "-dir", h.dir, "-lease", lease.String(), "-poll", "20ms")
	return h
}

// count returns how many rows there are.
func (h home) count(t *testing.T, of string) (n int) {
	t.Helper()
	require.NoError(t, h.db.read.QueryRowContext(context.Background(), "SELECT count(*) FROM "+of).Scan(&n))
	return n
}

// published returns how many messages the broker has got, and how many of them twice.
func (h home) published(t *testing.T) (messages, duplicates int) {
	t.Helper()
	file, err := os.Open(filepath.Join(h.dir, "broker.jsonl"))
	require.NoError(t, err)
	defer file.Close()
	seen := make(map[string]bool)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var m db.Message
		require.NoError(t, json.Unmarshal(lines.Bytes(), &m))
		if seen[m.ID] {
			duplicates++
		}
		seen[m.ID] = true
	}
	return len(seen), duplicates
}

// lease is short, because each crash blocks its key for that long.
const lease = time.Second

// A process is a running service.
type process struct{ *guardtest.Program }

// start starts a service on a free port. With an empty point it does not die.
func (h home) start(t *testing.T, point string) process {
	t.Helper()
	args := append([]string{"-addr", "127.0.0.1:0"}, h.args...)
	return process{guardtest.StartProgram(t, guardtest.Itself([]string{runMain + "=1", crashPoint + "=" + point}, args...))}
}

// by returns an order of the customer's.
func by(customer, key string) guardtest.Call {
	header := http.Header{"Authorization": {"Bearer token-of-" + customer}}
	return guardtest.Call{Path: "/orders", Key: key, Body: `{"item":"tea","quantity":2}`, Header: header}
}

// order sends an order of alice's.
func (p process) order(ctx context.Context, key string) (guardtest.Reply, error) {
	return p.Try(ctx, by("alice", key))
}

// retry sends an order until it is made, as a client does. The lease of a process that has died
// keeps it from being made at once.
func (p process) retry(t *testing.T, key string) (got guardtest.Reply) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		got, err = p.order(t.Context(), key)
		return err == nil && got.Status == http.StatusCreated
	}, 20*time.Second, 50*time.Millisecond)
	return got
}

func TestOneOrderAndOneMessageWhereverTheServiceDies(t *testing.T) {
	t.Parallel()
	for name, newHome := range homes {
		for _, c := range []struct {
			point      string
			replayed   bool // the retry
			duplicates int  // the broker gets them
		}{
			{point: "before CreateOrder"},
			{point: "before CreateMessage"},
			{point: "before commit"},
			{point: "before answer", replayed: true},
			{point: "before publish", replayed: true},
			{point: "after publish", replayed: true, duplicates: 1},
			{point: "before MarkPublished", replayed: true},
		} {
			t.Run(name+" "+c.point, func(t *testing.T) {
				t.Parallel()
				h := newHome(t)
				dying := h.start(t, c.point)
				first, err := dying.order(t.Context(), "order-1")
				for err == nil && first.Status == http.StatusServiceUnavailable { // a busy database; no order was made
					first, err = dying.order(t.Context(), "order-1")
				}
				dying.RequireKilled(t)

				p := h.start(t, "")
				second := p.retry(t, "order-1")
				require.Equal(t, c.replayed, second.Replayed())
				if err == nil { // the relay has died, and the client has its answer
					require.Equal(t, first.Body, second.Body)
				}
				require.Eventually(t, func() bool { return h.count(t, "outbox WHERE published IS NULL") == 0 }, time.Minute, 20*time.Millisecond)
				p.Stop(t)

				require.Equal(t, 1, h.count(t, "orders"))
				require.Equal(t, 1, h.count(t, "outbox"))
				messages, duplicates := h.published(t)
				require.Equal(t, 1, messages)
				require.Equal(t, c.duplicates, duplicates)
			})
		}
	}
}

// Several relays share an outbox. Each message is published by one of them.
func TestTwoServicesPublishEachMessageOnce(t *testing.T) {
	t.Parallel()
	for name, newHome := range homes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			services := []process{h.start(t, ""), h.start(t, "")}
			const orders = 20
			for i := range orders {
				services[i%2].retry(t, fmt.Sprintf("order-%d", i))
			}
			require.Eventually(t, func() bool { return h.count(t, "outbox WHERE published IS NULL") == 0 }, time.Minute, 20*time.Millisecond)
			for _, p := range services {
				p.Stop(t)
			}
			messages, duplicates := h.published(t)
			require.Equal(t, orders, messages)
			require.Zero(t, duplicates)
		})
	}
}

// A customer sees neither the orders nor the answers of another one.
func TestOrdersBelongToTheirCustomer(t *testing.T) {
	t.Parallel()
	h := homes["SQLite"](t)
	p := h.start(t, "")
	var order db.Order
	require.NoError(t, json.Unmarshal([]byte(p.retry(t, "order-1").Body), &order))
	for customer, want := range map[string]int{"alice": http.StatusOK, "bob": http.StatusNotFound, "mallory": http.StatusUnauthorized} {
		get := by(customer, "")
		get.Method, get.Path, get.NoBody = http.MethodGet, "/orders/"+order.ID, true
		require.Equal(t, want, p.Do(t, get).Status, customer)
	}
	got := p.Do(t, by("bob", "order-1"))
	require.Equal(t, http.StatusCreated, got.Status)
	require.False(t, got.Replayed())
	require.Equal(t, 2, h.count(t, "orders"))
}
