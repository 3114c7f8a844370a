package engine

import (
	"context"
	"errors"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// This file is about decisions that are only tried: by all rules, and without a call that writes.

type rehearsal struct{}

// Rehearse returns a context in which Resolve and Forget say what they would do, change nothing, and report
// nothing.
func Rehearse(ctx context.Context) context.Context {
	return context.WithValue(ctx, rehearsal{}, true)
}

func rehearses(ctx context.Context) bool { return ctx.Value(rehearsal{}) != nil }

// wouldResolve refuses what the store would refuse.
func wouldResolve(rec *store.Record, seen store.Seen) error {
	if rec.State != store.Held || rec.Seen() != seen {
		return store.ErrChanged
	}
	return nil
}

// wouldForget refuses what the store would refuse.
func (e *Engine) wouldForget(ctx context.Context, k intent.Key, seen store.Seen) error {
	_, rec, err := e.get(ctx, k)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrCorrupt) && seen.State == store.Corrupt:
		return nil
	case err == nil && (rec.Seen() != seen || rec.State == store.Claimed && rec.Lease > 0):
		return store.ErrChanged
	}
	return err
}
