package guardtest

import (
	"context"
	"slices"
	"sync"

	"example.com/idempotency/event"
)

// Events collects the events of a guard.
type Events struct {
	mu  sync.Mutex
	all []event.Event
}

// Observe collects an event: it is the argument of [idempotency.WithObserver].
func (e *Events) Observe(_ context.Context, ev event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, ev)
}

// All returns the events in order.
func (e *Events) All() []event.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// Kinds returns the kind of each event.
func (e *Events) Kinds() []event.Kind {
	kinds := []event.Kind{}
	for _, ev := range e.All() {
		kinds = append(kinds, ev.Kind)
	}
	return kinds
}

// Errors returns the errors of those events that have one.
func (e *Events) Errors() []error {
	var errs []error
	for _, ev := range e.All() {
		if ev.Err != nil {
			errs = append(errs, ev.Err)
		}
	}
	return errs
}

// Count returns how many events are of one kind.
func (e *Events) Count(kind event.Kind) (n int) {
	for _, ev := range e.All() {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}
