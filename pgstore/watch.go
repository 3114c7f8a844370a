package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/idempotency/internal/watch"
)

const (
	// quiet is how long a connection may be silent before the server is asked for a sign of
	// life: one that a firewall has forgotten never fails by itself.
	quiet = 5 * time.Second
	// pause and maxPause are the first and the longest pause before the store listens again.
	pause, maxPause = 50 * time.Millisecond, 2 * time.Second
)

// errNoListen is what a watch returns in a store without LISTEN.
var errNoListen = errors.New("pgstore: Watch: the store was made WithoutListen")

// Watch implements [store.Watcher]. All watches of a store share one connection, which is
// not one of the pool.
func (s *Store) Watch(ctx context.Context, key string) (settled <-chan struct{}, stop func(), err error) {
	if !s.listens {
		return nil, nil, errNoListen
	}
	settled, stop, err = s.watch.Watch(ctx, key)
	if errors.Is(err, watch.ErrClosed) {
		err = fmt.Errorf("pgstore: Watch: %w", err)
	}
	return settled, stop, err
}

// listen listens until nobody has waited for a while, or until the server refuses.
func (s *Store) listen(ctx context.Context) error {
	wait := pause
	for heard := false; ; {
		err := s.receive(ctx, func() { heard, wait = true, pause })
		if err == nil || ctx.Err() != nil {
			return err
		}
		if _, refused := errors.AsType[*pgconn.PgError](err); refused && !heard {
			return fmt.Errorf("pgstore: LISTEN: %w", err)
		}
		s.watch.Lost()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
			wait = min(2*wait, maxPause)
		}
	}
}

// receive listens on one connection. It returns nil when nobody has waited for a while.
func (s *Store) receive(ctx context.Context, heard func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.channel}.Sanitize()); err != nil {
		return err
	}
	heard()
	s.watch.Confirmed()
	for {
		n, err := waitFor(ctx, conn)
		switch {
		case err == nil && n != nil:
			s.watch.Wake(n.Payload)
		case err != nil:
			return err
		}
		if s.watch.Retire() {
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
