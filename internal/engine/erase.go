package engine

import (
	"context"
	"errors"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// An Erased says what [Engine.Erase] has done, or would do. The root's Erased says more of each field.
type Erased struct{ Completed, Unanswered, Held, InFlight, HeldLeft, Changed int }

// count counts a record that is erased.
func (e *Erased) count(s store.State) {
	switch s {
	case store.Completed:
		e.Completed++
	case store.Held:
		e.Held++
	default:
		e.Unanswered++
	}
}

// Erase forgets all records of a scope, but those in flight and, unless held says so, those that are held.
func (e *Engine) Erase(ctx context.Context, scope string, held bool, d Decision) (done Erased, err error) {
	if _, err := e.inspect(intent.Key{Scope: scope, Value: "any"}); err != nil {
		return done, err
	}
	seen := make(map[string]bool) // a record may be in two pages
	for q := (store.Query{}); ; {
		found, next, err := e.Find(ctx, intent.ByScope, scope, q)
		if err != nil {
			return done, err
		}
		for _, f := range found {
			name := f.Key.Name()
			if seen[name] {
				continue
			}
			seen[name] = true
			if err := e.eraseOne(ctx, intent.Key{Record: name}, f.Record, held, d, &done); err != nil {
				return done, err
			}
		}
		if q.Cursor = next; next == "" {
			return done, nil
		}
	}
}

// eraseOne forgets one record, unless it is to be left.
func (e *Engine) eraseOne(ctx context.Context, k intent.Key, rec store.Record, held bool, d Decision, done *Erased) error {
	switch {
	case rec.State == store.Claimed && rec.Lease > 0:
		done.InFlight++
		return nil
	case rec.State == store.Held && !held:
		done.HeldLeft++
		return nil
	}
	err := e.Forget(ctx, k, rec.Seen(), d)
	switch {
	case errors.Is(err, store.ErrChanged):
		done.Changed++
		return nil
	case err == nil:
		done.count(rec.State)
	}
	return err
}
