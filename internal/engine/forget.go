package engine

import (
	"context"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/store"
)

// Forget removes the record that was seen, in any state but a run in flight.
func (e *Engine) Forget(ctx context.Context, k intent.Key, seen store.Seen, d Decision) error {
	inspector, err := e.inspect(k)
	if err != nil {
		return err
	}
	if rehearses(ctx) {
		return e.wouldForget(ctx, k, seen)
	}
	id, about := e.lastSeen(ctx, k, seen)
	e.core.witnesses.Drop(k.Name())
	_, err = bounded(ctx, e.core, "forget", storeTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Forget(ctx, k.Name(), seen)
	})
	if err == nil {
		e.reportDecision(ctx, id, d, note.NewDecision(0, seen, d.Actor, d.Reason).Name(), about)
	}
	return err
}

// lastSeen is what an [event.Forgotten] tells of the record, which nobody can look up afterwards, and
// of its key. A record that is gone already, or that cannot be read, tells nothing.
func (e *Engine) lastSeen(ctx context.Context, k intent.Key, seen store.Seen) (intent.Key, event.Event) {
	ev := event.Event{Kind: event.Forgotten, Attempt: seen.Attempt, Held: seen.State == store.Held}
	if _, rec, err := e.get(ctx, k); err == nil {
		k = e.identify(ctx, k, rec)
		ev.OperationID = e.rules.Derivation.ID(k, rec.Fingerprint)
		ev.Route, ev.Age, ev.Trace = rec.Label, rec.Age, note.Last(rec.Notes).Trace
	}
	return k, ev
}
