package idempotency

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/giveup"
	"example.com/idempotency/store"
)

// This file holds every call of a store: how long one may take, what its failure is worth,
// and who hears of it.

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
	errStoreTimeout = errors.New("idempotency: store call timed out")
	errStoreStuck   = errors.New("idempotency: too many earlier store calls have not returned")
)

// backoff is the pause after the nth failure in a row: short at first, because most
// failures are a lost connection, and never more than two seconds.
func backoff(n int) time.Duration {
	return min(20*time.Millisecond<<min(n-1, 10), 2*time.Second)
}

// bounded makes one store call that returns within the timeout, whatever the store does: a
// store that hangs must not hang the client. Unless the store is known to honour its
// context, the call is made in a goroutine, which is abandoned when the time is over. It ends when
// the store returns.
func bounded[T any](ctx context.Context, c *core, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	if c.local {
		return f(ctx)
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

// calm returns f with its panics made errors: a store that panics has failed, and the guard also
// calls it in goroutines of its own, where a panic would end the process.
func calm[T any](f func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (v T, err error) {
		defer recovered("the store", &err)
		return f(ctx)
	}
}

// recovered, when deferred, makes an error of a panic.
func recovered(who string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("idempotency: %s panicked: %v\n%s", who, p, debug.Stack())
	}
}

// An access makes the store calls of one request for one record, and reports those that
// fail.
type access struct {
	core *core
	set  *settings
	id   Key
	key  string // id as the store sees it
	// method and route are what events say of the request.
	method, route string
	// client is the request's context. Its values count, its cancellation does not: a
	// client that hangs up must find its run settled when it comes back.
	client  context.Context
	attempt int // of the claim, once it is granted
}

// call makes a bounded call and reports its failure. ErrNotOwner is an answer, and not a
// failure.
func (a *access) call(op string, timeout time.Duration, f func(context.Context) error) error {
	start := time.Now()
	_, err := bounded(context.WithoutCancel(a.client), a.core, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	if err != nil && !errors.Is(err, store.ErrNotOwner) {
		a.observe(event.Event{Kind: event.StoreError, Op: op, Duration: time.Since(start), Err: err})
		return err
	}
	a.core.answered()
	return err
}

// requestClaim sends a claim, now, and reads the record. A Record is large, so it is handed on by
// its address.
func (a *access) requestClaim(rec *store.Record, now time.Time, c *store.Claim, timeout time.Duration) (err error) {
	if a.core.local { // without the context and the closure that bounded needs
		*rec, err = a.core.store.Claim(context.Background(), a.key, *c)
	} else {
		*rec, err = a.boundedClaim(*c, timeout)
	}
	if err == nil {
		a.core.answered()
	} else {
		*rec = store.Record{} // what comes with an error means nothing
		a.observe(event.Event{Kind: event.StoreError, Op: "claim", Duration: time.Since(now), Err: err})
	}
	return err
}

// boundedClaim is a function of its own because its closure moves the claim to the heap.
func (a *access) boundedClaim(c store.Claim, timeout time.Duration) (store.Record, error) {
	return bounded(context.WithoutCancel(a.client), a.core, timeout, func(ctx context.Context) (store.Record, error) {
		return a.core.store.Claim(ctx, a.key, c)
	})
}

// refusedClaim reports whether an error of Claim says that the claim was not granted. After
// any other error it may have been.
func refusedClaim(err error) bool {
	return errors.Is(err, ErrStoreFull) || errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnreadableHere) ||
		errors.Is(err, ErrTransactionOpen) || errors.Is(err, errStoreStuck)
}

func (a *access) requestRenewal(o store.Owner, timeout time.Duration) error {
	return a.call("renew", timeout, func(ctx context.Context) error {
		return a.core.store.Renew(ctx, a.key, o)
	})
}

func (a *access) complete(o store.Owner, answer []byte, status int, timeout time.Duration) error {
	c := store.Completion{Answer: answer, Status: status, TTL: a.set.ttl}
	if a.core.local {
		return a.core.store.Complete(context.Background(), a.key, o, c)
	}
	return a.call("complete", timeout, func(ctx context.Context) error {
		return a.core.store.Complete(ctx, a.key, o, c)
	})
}

func (a *access) release(o store.Owner, r store.Release, timeout time.Duration) error {
	return a.call("release", timeout, func(ctx context.Context) error {
		return a.core.store.Release(ctx, a.key, o, r)
	})
}

func (a *access) hold(o store.Owner, timeout time.Duration) error {
	return a.call("hold", timeout, func(ctx context.Context) error {
		return a.core.store.Hold(ctx, a.key, o)
	})
}

func (a *access) saveStep(o store.Owner, name string, stored []byte, timeout time.Duration) error {
	st := a.core.store.(store.StepStore) // beginStep has refused any other
	return a.call("step", timeout, func(ctx context.Context) error {
		return st.SaveStep(ctx, a.key, o, name, stored)
	})
}

// observe reports an event of this record, and of no run in particular.
func (a *access) observe(e event.Event) {
	e.Record, e.Scope, e.Method = a.key, a.id.Scope, a.method
	if e.Route == "" {
		e.Route = a.route
	}
	if e.Attempt == 0 {
		e.Attempt = a.attempt
	}
	a.set.observe((*uncancelled)(a), e)
}
