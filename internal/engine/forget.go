package engine

import (
	"context"
	"errors"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/store"
)

// Forget removes the record that was seen, in any state but a run in flight. It leaves a tombstone, if the rules say so.
func (e *Engine) Forget(ctx context.Context, k intent.Key, seen store.Seen, d Decision) error {
	inspector, err := e.inspect(k)
	if err != nil {
		return err
	}
	if rehearses(ctx) {
		return e.wouldForget(ctx, k, seen)
	}
	decision := note.NewDecision(0, seen, d.Actor, d.Reason)
	rec, id, about := e.lastSeen(ctx, k, seen)
	takeBack := func() {}
	if e.rules.Tombstones > 0 && rec.State != 0 && rec.Seen() == seen { // the store refuses any other, and has no trace of none
		if takeBack, err = e.bury(ctx, k, &rec, decision); err != nil {
			return err
		}
	}
	e.core.witnesses.Drop(k.Name())
	_, err = bounded(ctx, e.core, "forget", storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Forget(ctx, k.Name(), seen)
	})
	if err == nil {
		e.reportDecision(ctx, id, d, decision.Name(), about)
	}
	if errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrCorrupt) { // of any other error, nobody knows
		takeBack()
	}
	return err
}

// lastSeen returns the record that is to be forgotten, and what an [event.Forgotten] tells of it, which nobody can look up
// afterwards, and of its key. A record that is gone already tells nothing, and one that cannot be read is in the state
// Corrupt.
func (e *Engine) lastSeen(ctx context.Context, k intent.Key, seen store.Seen) (store.Record, intent.Key, event.Event) {
	ev := event.Event{Kind: event.Forgotten, Attempt: seen.Attempt, Held: seen.State == store.Held}
	_, rec, err := e.get(ctx, k)
	switch {
	case err == nil:
		k = e.identify(ctx, k, rec)
		ev.OperationID = e.intentOf(k, &rec).ID()
		ev.Route, ev.Age, ev.Trace = rec.Label, rec.Age, note.Last(rec.Notes).Trace
	case errors.Is(err, store.ErrCorrupt):
		rec = store.Record{State: store.Corrupt}
	default:
		rec = store.Record{}
	}
	return rec, k, ev
}
