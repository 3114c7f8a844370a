package guardtest

import (
	"context"
	"slices"
	"sync"

	"example.com/idempotency"
)

// Events collects the events of a guard.
type Events struct {
	mu  sync.Mutex
	all []idempotency.Event
}

// Observe collects an event: it is the argument of [idempotency.WithObserver].
func (e *Events) Observe(_ context.Context, event idempotency.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

// All returns the events in order.
func (e *Events) All() []idempotency.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// Kinds returns the kind of each event.
func (e *Events) Kinds() []idempotency.EventKind {
	kinds := []idempotency.EventKind{}
	for _, event := range e.All() {
		kinds = append(kinds, event.Kind)
	}
	return kinds
}

// Errors returns the errors of those events that have one.
func (e *Events) Errors() []error {
	var errs []error
	for _, event := range e.All() {
		if event.Err != nil {
			errs = append(errs, event.Err)
		}
	}
	return errs
}

// Count returns how many events are of one kind.
func (e *Events) Count(kind idempotency.EventKind) (n int) {
	for _, event := range e.All() {
		if event.Kind == kind {
			n++
		}
	}
	return n
}
