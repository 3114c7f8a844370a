package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency/internal/watch"
)

// quiet is how long a connection may be silent before the server is asked for a sign of life: one that
// a firewall has forgotten never fails by itself.
const quiet = 5 * time.Second

// A listener hears on a channel which records have settled.
type listener struct {
	pool    *pgxpool.Pool // how to connect
	channel string
	watch   *watch.Subscription // to whom it tells
}

// listenOn returns the subscription to a channel.
func listenOn(pool *pgxpool.Pool, channel string) *watch.Subscription {
	l := &listener{pool: pool, channel: channel}
	l.watch = watch.NewSubscription(l.listen)
	return l.watch
}

// listen listens until nobody has waited for a while, or until the server refuses.
func (l *listener) listen(ctx context.Context) error {
	return l.watch.Relisten(ctx, l.receive, func(err error, heard bool) error {
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
