package main

import (
	"context"
	"errors"

	"example.com/idempotency/store"
)

// A dryStore lets a guard look and decide, by the guard's own rules, and writes no decision. A guard that
// only looks and decides calls nothing else that writes.
type dryStore struct{ records }

// Resolve refuses what the store would refuse.
func (s dryStore) Resolve(ctx context.Context, key string, seen store.Seen, _ store.Settlement) error {
	rec, err := s.Get(ctx, key)
	if err == nil && (rec.State != store.Held || rec.Seen() != seen) {
		err = store.ErrChanged
	}
	return err
}

// Forget refuses what the store would refuse.
func (s dryStore) Forget(ctx context.Context, key string, seen store.Seen) error {
	rec, err := s.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrCorrupt) && seen.State == store.Corrupt:
		return nil
	case err == nil && (rec.Seen() != seen || rec.State == store.Claimed && rec.Lease > 0):
		return store.ErrChanged
	}
	return err
}
