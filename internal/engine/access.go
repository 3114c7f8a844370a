package engine

import (
	"context"
	"errors"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// An Access makes the store calls of one request for one record, and reports those that
// fail.
type Access struct {
	core  *core
	rules *Rules

	ID   intent.Key
	Name string // of the record
	// Method and Route are what events say of the request.
	Method, Route string
	// Client is the request's context. Its values count, its cancellation does not: a
	// client that hangs up must find its run settled when it comes back.
	Client  context.Context
	Attempt int // of the claim, once it is granted
}

// call makes a bounded call and reports its failure. ErrNotOwner is an answer, and not a
// failure.
func (a *Access) call(op string, timeout time.Duration, f func(context.Context) error) error {
	start := time.Now()
	_, err := bounded(context.WithoutCancel(a.Client), a.core, op, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	if err != nil && !errors.Is(err, store.ErrNotOwner) {
		a.Observe(event.Event{Kind: event.StoreError, Op: op, Duration: time.Since(start), Err: err})
		return err
	}
	a.core.answered()
	return err
}

// requestClaim sends a claim, now, and reads the record. A Record is large, so it is handed on by
// its address.
func (a *Access) requestClaim(rec *store.Record, now time.Time, c *store.Claim, timeout time.Duration) (err error) {
	if a.core.local { // without the context and the closure that bounded needs
		*rec, err = a.core.store.Claim(context.Background(), a.Name, *c)
	} else {
		*rec, err = a.boundedClaim(*c, timeout)
	}
	if err == nil {
		a.core.answered()
	} else {
		*rec = store.Record{} // what comes with an error means nothing
		a.Observe(event.Event{Kind: event.StoreError, Op: "claim", Duration: time.Since(now), Err: err})
	}
	return err
}

// boundedClaim is a function of its own because its closure moves the claim to the heap.
func (a *Access) boundedClaim(c store.Claim, timeout time.Duration) (store.Record, error) {
	return bounded(context.WithoutCancel(a.Client), a.core, "claim", timeout, func(ctx context.Context) (store.Record, error) {
		return a.core.store.Claim(ctx, a.Name, c)
	})
}

// look returns the record without a claim, and the zero Record if there is none or the store cannot tell.
func (a *Access) look(timeout time.Duration) (store.Record, error) {
	inspector, ok := a.core.store.(store.Inspector)
	if !ok {
		return store.Record{}, nil
	}
	rec, err := bounded(context.WithoutCancel(a.Client), a.core, "get", timeout, func(ctx context.Context) (store.Record, error) {
		return inspector.Get(ctx, a.Name)
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Record{}, nil
	case err != nil:
		a.Observe(event.Event{Kind: event.StoreError, Op: "get", Err: err})
	}
	return rec, err
}

func (a *Access) requestRenewal(o store.Owner, timeout time.Duration) error {
	return a.call("renew", timeout, func(ctx context.Context) error {
		return a.core.store.Renew(ctx, a.Name, o)
	})
}

func (a *Access) complete(o store.Owner, answer []byte, status int, timeout time.Duration) error {
	c := store.Completion{Answer: answer, Status: status, TTL: a.rules.TTL}
	if a.core.local {
		return a.core.store.Complete(context.Background(), a.Name, o, c)
	}
	return a.call("complete", timeout, func(ctx context.Context) error {
		return a.core.store.Complete(ctx, a.Name, o, c)
	})
}

func (a *Access) release(o store.Owner, r store.Release, timeout time.Duration) error {
	return a.call("release", timeout, func(ctx context.Context) error {
		return a.core.store.Release(ctx, a.Name, o, r)
	})
}

func (a *Access) hold(o store.Owner, note []byte, timeout time.Duration) error {
	return a.call("hold", timeout, func(ctx context.Context) error {
		return a.core.store.Hold(ctx, a.Name, o, note)
	})
}

func (a *Access) saveStep(o store.Owner, name string, stored []byte, timeout time.Duration) error {
	st := a.core.store.(store.StepStore) // beginStep has refused any other
	return a.call("step", timeout, func(ctx context.Context) error {
		return st.SaveStep(ctx, a.Name, o, name, stored)
	})
}

// Observe reports an event of this record, and of no run in particular.
func (a *Access) Observe(e event.Event) {
	e.Record, e.Scope, e.Method = a.Name, a.ID.Scope, a.Method
	if e.Route == "" {
		e.Route = a.Route
	}
	if e.Attempt == 0 {
		e.Attempt = a.Attempt
	}
	a.rules.Reporter.Observe((*uncancelled)(a), e)
}

// uncancelled is an Access as the context of its events: it has the values of the request's
// context and does not end. It costs no memory, also when an observer looks up a value, which
// it does again and again for the trace; context.WithoutCancel costs some each time.
type uncancelled Access

func (u *uncancelled) Value(key any) any { return u.Client.Value(key) }

func (u *uncancelled) Deadline() (time.Time, bool) { return time.Time{}, false }

func (u *uncancelled) Done() <-chan struct{} { return nil }

func (u *uncancelled) Err() error { return nil }
