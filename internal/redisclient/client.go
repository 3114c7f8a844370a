// Package redisclient makes clients of go-redis return by the deadlines of contexts. It knows what
// of a client a call may have to wait for.
package redisclient

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/giveup"
)

// A Client is as much of a client as stores need.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
	TxPipeline() redis.Pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Obedient returns a client that sends its commands over the connections of client and through its
// hooks, and reports whether it returns by the deadlines of contexts. It leaves client as it is.
//
// The hooks see what all but Subscribe send.
func Obedient(client redis.UniversalClient) (_ Client, obeys bool) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		switch {
		case o.ContextTimeoutEnabled && setsDeadlines(o.ReadTimeout, o.WriteTimeout):
			return c, true
		case o.StreamingCredentialsProvider != nil:
			return c, false // Subscribe gets no context, and may wait for a network
		}
		// The copy has options of its own, which nobody else has seen yet.
		same := c.WithTimeout(0)
		own := same.Options()
		if own == o || own != same.Options() {
			return c, false // another version of go-redis than this was written for
		}
		own.ContextTimeoutEnabled = true
		own.ReadTimeout, own.WriteTimeout = max(0, o.ReadTimeout), max(0, o.WriteTimeout)
		boundConnecting(own)
		return newRelay(c, same), true
	case *redis.ClusterClient:
		o := c.Options()
		return c, o.ContextTimeoutEnabled && setsDeadlines(o.ReadTimeout, o.WriteTimeout)
	}
	return client, false
}

// ReadTimeout returns how long a client waits for a reply, or 0 if that is not known or has no bound of its own.
func ReadTimeout(client redis.UniversalClient) time.Duration {
	switch c := client.(type) {
	case *redis.Client:
		return max(0, c.Options().ReadTimeout)
	case *redis.ClusterClient:
		return max(0, c.Options().ReadTimeout)
	}
	return 0
}

// setsDeadlines reports whether a client with these timeouts sets deadlines on its connections.
// Negative ones tell it to set none, not even that of a context.
func setsDeadlines(read, write time.Duration) bool { return read >= 0 && write >= 0 }

// maxStuck bounds the functions of a client's options that were given up and have not returned.
const maxStuck = 1024

var errStuck = errors.New("too many earlier calls of OnConnect or of a provider of credentials have not returned")

// boundConnecting makes a client wait no longer than the context allows for the functions that it
// calls when it has a new connection. It waits for Dialer that way by itself. Limiter, which it
// calls for each command, is there to answer at once.
func boundConnecting(o *redis.Options) {
	var stuck atomic.Int64
	if f := o.OnConnect; f != nil {
		o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
			_, err := bounded(ctx, &stuck, func(ctx context.Context) (none struct{}, err error) {
				return none, f(ctx, conn)
			})
			return err
		}
	}
	type credentials struct{ username, password string }
	provider := o.CredentialsProviderContext
	if f := o.CredentialsProvider; f != nil && provider == nil {
		provider = func(context.Context) (string, string, error) {
			username, password := f()
			return username, password, nil
		}
	}
	if provider != nil {
		o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			c, err := bounded(ctx, &stuck, func(ctx context.Context) (c credentials, err error) {
				c.username, c.password, err = provider(ctx)
				return c, err
			})
			return c.username, c.password, err
		}
	}
}

// bounded calls f, which it gives up when ctx ends, unless too many such calls have not returned.
func bounded[T any](ctx context.Context, stuck *atomic.Int64, f func(context.Context) (T, error)) (T, error) {
	if stuck.Load() >= maxStuck {
		var none T
		return none, errStuck
	}
	return giveup.Call(ctx, stuck, f)
}
