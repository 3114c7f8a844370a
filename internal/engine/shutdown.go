package engine

import (
	"context"
	"time"

	"example.com/idempotency/event"
)

// Shutdown refuses new requests, and returns when the runs in flight are settled, or when ctx ends.
func (e *Engine) Shutdown(ctx context.Context) error {
	err := e.core.work.Shutdown(ctx)
	// No request is left that could make another claim. Those that are being given back know
	// since the beginning of the shutdown.
	if lateErr := e.core.late.Shutdown(ctx); err != nil || lateErr != nil {
		e.core.late.Stop()
		e.core.unsettled.GiveUp(ErrShutdown)
	}
	if err != nil {
		e.reportLeft(err)
	}
	return err
}

// reportLeft reports the runs in flight. One that the store has failed to settle was given up before.
func (e *Engine) reportLeft(err error) {
	left := make(map[*Lease]time.Time) // and when they began: no observer is called while runs cannot end
	e.core.runs.Each(func(of any, started time.Time) { left[of.(*Lease)] = started })
	for l, started := range left {
		if !l.hasEnded() {
			l.Observe(event.Event{Kind: event.RunLeft, Duration: time.Since(started), Err: err})
		}
	}
}

// Stop is Shutdown for an engine whose runs matter to nobody.
func (e *Engine) Stop(ctx context.Context) error { return e.core.work.Shutdown(ctx) }
