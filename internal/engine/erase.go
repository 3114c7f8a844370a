package engine

import (
	"context"
	"errors"
	"time"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// An Erased says what [Engine.Erase] has done, or would do. The root's Erased says more of each field.
type Erased struct{ Completed, Unanswered, Held, InFlight, HeldLeft, Younger, Changed int }

// An Erasing says which records of a scope are erased; see the root's.
type Erasing struct {
	Held      bool
	OlderThan time.Duration
}

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

// Erase forgets the records of a scope, but those in flight, those that are held unless the Erasing says so, and those that are
// too young.
func (e *Engine) Erase(ctx context.Context, scope string, what Erasing, d Decision) (done Erased, err error) {
	if scope == "" {
		return done, errors.New("idempotency: Erase: give a Scope")
	}
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
			if err := e.eraseOne(ctx, intent.Key{Record: name}, f.Record, what, d, &done); err != nil {
				return done, err
			}
		}
		if q.Cursor = next; next == "" {
			return done, nil
		}
	}
}

// A Sparing is why a record is not erased.
type Sparing int

// Why, or that it is erased.
const (
	Doomed   Sparing = iota
	InFlight         // it is in flight
	InDoubt          // nobody knows whether its run, or one of its steps, has had an effect
	Younger          // a client may still repeat its request
)

// Spares returns whether a record is to be left. Of what was found, it reads the steps.
func (e *Engine) Spares(ctx context.Context, k intent.Key, found store.Record, what Erasing) (Sparing, error) {
	switch {
	case found.State == store.Claimed && found.Lease > 0:
		return InFlight, nil
	case found.State == store.Held && !what.Held:
		return InDoubt, nil
	case found.Age < what.OlderThan:
		return Younger, nil
	case what.Held, found.State == store.Completed:
		return Doomed, nil
	}
	_, rec, err := e.get(ctx, k)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Doomed, nil // it has ended meanwhile
	case errors.Is(err, store.ErrCorrupt), err == nil && len(e.stepsOf(k, rec).mayHave()) > 0:
		return InDoubt, nil
	}
	return Doomed, err
}

// eraseOne forgets one record, unless it is to be left.
func (e *Engine) eraseOne(ctx context.Context, k intent.Key, rec store.Record, what Erasing, d Decision, done *Erased) error {
	spared, err := e.Spares(ctx, k, rec, what)
	switch {
	case err != nil:
		return err
	case spared == InFlight:
		done.InFlight++
		return nil
	case spared == InDoubt:
		done.HeldLeft++
		return nil
	case spared == Younger:
		done.Younger++
		return nil
	}
	err = e.Forget(ctx, k, rec.Seen(), d)
	switch {
	case errors.Is(err, store.ErrChanged):
		done.Changed++
		return nil
	case err == nil:
		done.count(rec.State)
	}
	return err
}
