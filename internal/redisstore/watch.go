package redisstore

// How a store hears that a record has settled.

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/watch"
)

// maxSilence is how long the subscription may be silent before the server is asked for a sign of life.
// After as long again the connection is given up: one that a firewall has forgotten never fails by itself.
const maxSilence = 5 * time.Second

// A listener hears on one channel which records have settled, and wakes those who wait for them.
//
// There is one channel for all records, so that a process subscribes once, and not with two round
// trips for each key. The messages for others are few, because only records that somebody waits for
// are announced, and a Cluster passes every message to all its nodes anyway.
type listener struct {
	*watch.Subscription
	server  *server
	channel string
}

func newListener(s *server, channel string) *listener {
	l := &listener{server: s, channel: channel}
	l.Subscription = watch.NewSubscription(l.listen)
	return l
}

// listen keeps the channel subscribed until nobody has waited for a while, or until the
// server refuses.
func (l *listener) listen(ctx context.Context) error {
	return l.Relisten(ctx, l.receive, func(err error, heard bool) error {
		if !heard && isReply(err) || errors.Is(err, redis.ErrClosed) {
			return l.server.failure(ctx, err) // the account may not listen, for example, or never will again
		}
		l.server.reloadAfter(ctx, err)
		return nil
	})
}

// receive listens on one connection. It returns nil when nobody has waited for a while.
func (l *listener) receive(ctx context.Context, heard func()) error {
	sub := l.server.client.Subscribe(ctx, l.channel)
	hangUp := sync.OnceFunc(func() { _ = sub.Close() })
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)() // nothing else ends a read
	for quiet := false; ; {
		message, err := sub.ReceiveTimeout(ctx, maxSilence)
		switch message := message.(type) {
		case *redis.Subscription:
			heard()
		case *redis.Message:
			l.Wake(message.Payload)
		}
		if l.Retire() {
			return nil
		}
		var timeout net.Error
		switch {
		case err == nil:
			quiet = false
		case quiet || !errors.As(err, &timeout) || !timeout.Timeout():
			return err
		default:
			quiet = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
		}
	}
}
