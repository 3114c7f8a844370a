//go:build unix

package main

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"example.com/idempotency/examples/orders/db"
	"example.com/idempotency/internal/pgserver"
)

// The environment of the processes that the tests start. runMain makes this test binary run the
// program, and crashPoint names the moment at which the program kills itself.
const (
	runMain    = "ORDERS_TEST_RUN_MAIN"
	crashPoint = "ORDERS_TEST_CRASH"
)

func TestMain(m *testing.M) {
	point := os.Getenv(crashPoint)
	switch {
	case os.Getenv(runMain) == "":
		os.Exit(pgserver.Main(m))
	case point == "":
		main()
	default:
		crashingMain(crash(point))
	}
}

// crashingMain is the main function of a service that dies at a chosen moment.
func crashingMain(c crash) {
	ctx := context.Background()
	config := parse(os.Args[1:])
	d, b, err := config.open(ctx)
	if err == nil {
		var listener net.Listener
		if listener, err = net.Listen("tcp", config.addr); err == nil {
			err = run(ctx, config, c.database(d), crashingBroker{b, c}, crashingListener{listener, c})
		}
	}
	slog.Error("a service that was to die has ended", "error", err)
	os.Exit(1)
}

// A crash is the moment at which a process dies. For example, "before CreateMessage" is the moment
// before the query of that name.
type crash string

// die ends the process as kill -9 does: no deferred call runs, and nothing is flushed.
func (c crash) die(moment string) {
	if moment == string(c) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// database returns a database whose transactions die.
func (c crash) database(d *database) *database {
	dying := *d
	dying.inTx = func(ctx context.Context, f func(tx db.DBTX) error) error {
		return d.inTx(ctx, func(tx db.DBTX) error {
			err := f(crashingTx{tx, c})
			c.die("before commit")
			return err
		})
	}
	return &dying
}

type crashingTx struct {
	db.DBTX
	crash crash
}

func (t crashingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(query, "-- name: "), " ")
	t.crash.die("before " + name)
	return t.DBTX.ExecContext(ctx, query, args...)
}

// A crashingBroker dies around a publication.
type crashingBroker struct {
	broker
	crash crash
}

func (b crashingBroker) publish(ctx context.Context, m db.Message) error {
	b.crash.die("before publish")
	err := b.broker.publish(ctx, m)
	b.crash.die("after publish")
	return err
}

// A crashingListener dies before the first byte of an answer to an order that was made.
type crashingListener struct {
	net.Listener
	crash crash
}

func (l crashingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return crashingConn{conn, l.crash}, err
}

type crashingConn struct {
	net.Conn
	crash crash
}

func (c crashingConn) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("HTTP/1.1 201 ")) {
		c.crash.die("before answer")
	}
	return c.Conn.Write(p)
}
