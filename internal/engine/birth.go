package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/store"
)

// This file finds out that a store has forgotten everything. A mark in the store, a record of the library itself, says
// when the store was first seen. A process that has seen the mark and finds another one knows that the store was
// empty in between.

// markedFor is how long a mark stays, below the 34 years that the Redis store can count.
const markedFor = 30 * 365 * 24 * time.Hour

// Check asks the store whether it can be trusted, if it can tell, and looks whether it is the one that was known.
func (e *Engine) Check(ctx context.Context) error {
	var trusted error
	if st, ok := e.core.store.(interface{ Check(context.Context) error }); ok {
		trusted = st.Check(ctx)
	}
	reset, err := e.LookForBirth(ctx)
	return errors.Join(trusted, reset, err)
}

// Birth returns when the store was born, as far as somebody has marked it. Errors: store.ErrNotFound if nobody has,
// ErrNoInspector, and those of the store.
func (e *Engine) Birth(ctx context.Context) (report.Birth, error) {
	rec, err := e.readOwn(ctx, intent.BirthMark, store.Inspector.Get)
	if err != nil {
		return report.Birth{}, err
	}
	return report.Birth{Owner: rec.Owner, At: time.Now().Add(-rec.Age)}, nil
}

// LookForBirth looks for the mark of the store, and makes it if there is none. If the store is not the one that this process
// knew, it reports that, and returns it as reset. The other error says why the mark cannot be read or made. A store of this
// process ends with its memory of it, and one that is no store.Inspector cannot be asked: they have no mark.
func (e *Engine) LookForBirth(ctx context.Context) (reset, err error) {
	if _, ok := e.core.store.(store.Inspector); !ok || e.core.local {
		return nil, nil
	}
	now, reset, err := e.core.births.Hear(func() (report.Birth, error) {
		born, err := e.Birth(ctx)
		if errors.Is(err, store.ErrNotFound) {
			if _, err = e.makeOwn(ctx, intent.BirthMark, "", store.Completion{TTL: markedFor}); err == nil {
				born, err = e.Birth(ctx)
			}
		}
		return born, err
	})
	switch {
	case errors.Is(err, store.ErrNotFound): // another process makes it just now, and the next look finds it
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("idempotency: the mark of the store's birth cannot be read or made, so nobody can tell whether the store has forgotten everything: %w", err)
	case reset != nil:
		e.rules.Reporter.Observe(ctx, event.Event{Kind: event.StoreReset, Record: intent.BirthMark, Age: time.Since(now.At), Err: reset})
	}
	return reset, nil
}

// reportUnborn reports that the mark cannot be read or made.
func (e *Engine) reportUnborn(ctx context.Context, err error) {
	kind := event.StoreError
	if errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnreadableHere) {
		kind = event.Corrupt
	}
	e.rules.Reporter.Observe(ctx, event.Event{Kind: kind, Op: "birth", Record: intent.BirthMark, Err: err})
}
