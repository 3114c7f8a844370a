package engine

import (
	"context"
	"time"

	"example.com/idempotency/store"
)

// This file reads and makes records of the library itself, by what every store can do.

const (
	// ownLease is how long such a record waits for the process that makes it, and ownRetention how long it is kept
	// if nobody completes it.
	ownLease     = 10 * time.Second
	ownRetention = time.Minute
)

// readOwn reads such a record with one of the methods for that. One that somebody is still making is not found.
func (e *Engine) readOwn(
	ctx context.Context, name string, method func(store.Inspector, context.Context, string) (store.Record, error),
) (store.Record, error) {
	inspector, ok := e.core.store.(store.Inspector)
	if !ok {
		return store.Record{}, ErrNoInspector
	}
	rec, err := bounded(ctx, e.core, "get", storeTimeout, func(ctx context.Context) (store.Record, error) {
		return method(inspector, ctx, name)
	})
	if err == nil && rec.State != store.Completed {
		err = store.ErrNotFound
	}
	return rec, err
}

// makeOwn makes such a record if there is none. It returns what the store has, which is this one if it is Mine.
func (e *Engine) makeOwn(ctx context.Context, name, label string, done store.Completion) (store.Record, error) {
	c := store.Claim{Owner: newOwner(), Lease: ownLease, Retention: ownRetention, Label: label}
	rec, err := bounded(ctx, e.core, "claim", storeTimeout, func(ctx context.Context) (store.Record, error) {
		return e.core.store.Claim(ctx, name, c)
	})
	if err != nil || !rec.Mine {
		return rec, err
	}
	_, err = bounded(ctx, e.core, "complete", storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, e.core.store.Complete(ctx, name, c.Owner, done)
	})
	rec.Owner, rec.State = c.Owner, store.Completed
	return rec, err
}

// removeOwn removes such a record, if it is what was seen.
func (e *Engine) removeOwn(ctx context.Context, name string, seen store.Seen) error {
	inspector, ok := e.core.store.(store.Inspector)
	if !ok {
		return ErrNoInspector
	}
	_, err := bounded(ctx, e.core, "forget", storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Forget(ctx, name, seen)
	})
	return err
}
