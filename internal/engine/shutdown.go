package engine

import (
	"context"
	"time"

	"example.com/idempotency/event"
)

// Shutdown refuses new requests, and returns when the runs in flight are settled, or when ctx ends.
func (e *Engine) Shutdown(ctx context.Context) error {
	err := e.core.work.Shutdown(ctx)
	if err != nil {
		for lease, run := range e.core.long.All() {
			lease.(*Lease).Observe(event.Event{Kind: event.RunLeft, Duration: time.Since(run.Started), Err: err})
		}
	}
	// No request is left that could make another claim. Those that are being given back know
	// since the beginning of the shutdown.
	if lateErr := e.core.late.Shutdown(ctx); err != nil || lateErr != nil {
		e.core.late.Stop()
		e.core.unsettled.GiveUp(ErrShutdown)
	}
	return err
}

// Stop is Shutdown for an engine whose runs matter to nobody.
func (e *Engine) Stop(ctx context.Context) error { return e.core.work.Shutdown(ctx) }
