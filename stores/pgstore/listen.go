package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency/internal/watch"
)

// quiet is how long a connection may be silent before the server is asked for a sign of life: one that
// a firewall has forgotten never fails by itself.
const quiet = 5 * time.Second

// A pooler that gives each transaction another connection takes LISTEN, and passes no notification on. A
// listener that does not hear its own in echoTime is deaf, and listens again after deafTime.
const (
	echoTime = time.Second
	deafTime = time.Minute
)

// errDeaf says that a listener hears nothing.
var errDeaf = errors.New("pgstore: Watch: LISTEN hears no NOTIFY, as behind PgBouncer with transaction pooling: " +
	"requests that wait ask at intervals; give New a direct connection by WithPoolConfig, or WithoutListen")

// A listener hears on a channel which records have settled.
type listener struct {
	pool    *pgxpool.Pool // how to connect
	channel string
	watch   *watch.Subscription       // to whom it tells
	deaf    atomic.Pointer[time.Time] // until when, if it was
	told    atomic.Bool               // somebody was told that it is
}

// listenOn returns a listener on a channel.
func listenOn(pool *pgxpool.Pool, channel string) *listener {
	l := &listener{pool: pool, channel: channel}
	l.watch = watch.NewSubscription(l.listen)
	return l
}

// isDeaf reports whether the listener has lately heard nothing.
func (l *listener) isDeaf() bool {
	until := l.deaf.Load()
	return until != nil && time.Now().Before(*until)
}

// listen listens until nobody has waited for a while, or until the server refuses.
func (l *listener) listen(ctx context.Context) error {
	return l.watch.Relisten(ctx, l.receive, func(err error, heard bool) error {
		if errors.Is(err, errDeaf) {
			return err
		}
		if _, refused := errors.AsType[*pgconn.PgError](err); refused && !heard {
			return fmt.Errorf("pgstore: LISTEN: %w", err)
		}
		return nil
	})
}

// receive listens on one connection. It returns nil when nobody has waited for a while.
func (l *listener) receive(ctx context.Context, heard func()) error {
	conn, err := pgx.ConnectConfig(ctx, l.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		return err
	}
	if err := l.hearEcho(ctx, conn); err != nil {
		return err
	}
	heard()
	for {
		n, err := waitFor(ctx, conn)
		switch {
		case err == nil && n != nil:
			l.watch.Wake(n.Payload)
		case err != nil:
			return err
		}
		if l.watch.Retire() {
			return nil
		}
	}
}

// hearEcho returns nil if the connection hears what another one announces. Nobody waits for an empty key.
func (l *listener) hearEcho(ctx context.Context, conn *pgx.Conn) error {
	if _, err := l.pool.Exec(ctx, "SELECT pg_catalog.pg_notify($1, '')", l.channel); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, echoTime)
	defer cancel()
	n, err := conn.WaitForNotification(soon)
	switch {
	case err == nil:
		l.watch.Wake(n.Payload) // it may be that of another
	case ctx.Err() == nil && soon.Err() != nil:
		until := time.Now().Add(deafTime)
		l.deaf.Store(&until)
		return errDeaf
	}
	return err
}

// waitFor returns the next notification, or none after a while in which the server has shown that
// it is there.
func waitFor(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	short, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	n, err := conn.WaitForNotification(short)
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return n, err
	}
	alive, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	return nil, conn.Ping(alive)
}
