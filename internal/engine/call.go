package engine

import (
	"context"
	"errors"
	"time"

	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/internal/giveup"
	"example.com/idempotency/store"
)

// storeTimeout bounds one call of the store. A store that answers later than this is
// as good as gone for a request that somebody is waiting for.
const storeTimeout = 2 * time.Second

// patience is how long a client waits for the store after its run: for a step to be
// recorded, or for the run to be settled.
const patience = 2 * time.Second

// freeSize and sizePerSecond say how much longer a call may take for what it sends or reads:
// a second for each MiB above the first. A store that takes a few MiB in a second is slow,
// but it works.
const (
	freeSize      = 1 << 20
	sizePerSecond = 1 << 20
)

// sizeTime is how much longer a call may take, or be waited for, because of a value of n bytes.
func sizeTime(n int64) time.Duration {
	return time.Duration(max(0, n-freeSize)) * time.Second / sizePerSecond
}

// maxAbandoned bounds the calls in which a store that ignores its context hangs. When so
// many have not come back, no further call is made: each keeps a goroutine.
const maxAbandoned = 4096

var (
	errStoreTimeout error = timedOut{}
	errStoreStuck         = errors.New("idempotency: too many earlier store calls have not returned")
)

// bounded makes one store call that returns within the timeout, whatever the store does: a
// store that hangs must not hang the client. Unless the store is known to honour its
// context, the call is made in a goroutine, which is abandoned when the time is over. It ends when
// the store returns.
func bounded[T any](ctx context.Context, c *core, op string, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	if c.local {
		return f(ctx)
	}
	if c.calls != nil {
		defer c.called(ctx, op, time.Now())
	}
	f = calm(f)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errStoreTimeout)
	defer cancel()
	if c.inline {
		return f(ctx)
	}
	if c.abandoned.Load() >= maxAbandoned {
		var none T
		return none, errStoreStuck
	}
	return giveup.Call(ctx, &c.abandoned, f)
}

// called tells of a call that has ended.
func (c *core) called(ctx context.Context, op string, start time.Time) {
	c.calls(ctx, op, time.Since(start))
}

// calm returns f with its panics made errors: a store that panics has failed, and the guard also
// calls it in goroutines of its own, where a panic would end the process.
func calm[T any](f func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (v T, err error) {
		defer inflight.Recovered("the store", &err)
		return f(ctx)
	}
}

// refusedClaim reports whether an error of Claim says that the claim was not granted. After
// any other error it may have been.
func refusedClaim(err error) bool {
	return isAnswer(err) || errors.Is(err, errStoreStuck) || errors.Is(err, inflight.ErrBehind)
}

// isAnswer reports whether an error of Claim is what the store says about the claim.
func isAnswer(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnreadableHere) ||
		errors.Is(err, store.ErrTransactionOpen)
}

// A timedOut error is a net.Error, so that a program tells a store that is away from one that refuses.
type timedOut struct{}

func (timedOut) Error() string   { return "idempotency: store call timed out" }
func (timedOut) Timeout() bool   { return true }
func (timedOut) Temporary() bool { return true }
