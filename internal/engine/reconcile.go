package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/store"
)

const (
	// reconcilePage is how many records a call of the store lists.
	reconcilePage = 500
	// reconcilePages is how many pages of the index a tick reads, and sweepPages how many of all
	// records.
	reconcilePages = 40
	sweepPages     = 8
	// sweepPause is how many ticks pass at least between the beginnings of two sweeps.
	sweepPause = 10
	// knownFor is for how many ticks a run is known that is not found any more.
	knownFor = 10
)

// Reconcile looks for held keys, at once and then every so often, until ctx ends or a shutdown begins.
func (e *Engine) Reconcile(ctx context.Context, every time.Duration) error {
	lister, ok := e.core.store.(store.Lister)
	if !ok {
		return fmt.Errorf("idempotency: Reconcile: %w", ErrNoLister)
	}
	if every <= 0 {
		return fmt.Errorf("idempotency: Reconcile: every %v is not positive", every)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-e.core.work.Quit:
			cancel(ErrShutdown)
		case <-ctx.Done():
		}
	}()
	r := reconciler{engine: e, lister: lister, every: every, asked: make(map[string]bool), known: make(map[report.Run]int)}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ; ctx.Err() == nil && e.core.work.Admit(); r.n++ {
		r.admitted(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// errTurnOver is why a resolver is stopped: nothing is looked for meanwhile, and other keys wait for their turn.
var errTurnOver = errors.New("idempotency: the resolver has had the time between two ticks of Reconcile, and other keys wait")

// A reconciler is one call of Reconcile.
type reconciler struct {
	engine *Engine
	lister store.Lister
	every  time.Duration
	// index and sweep are where the walks go on.
	index, sweep string
	swept        int  // the tick in which the sweep began
	away         bool // the store has failed, and that is reported
	unborn       bool // the mark of its birth cannot be read or made, and that is reported
	// found are the held records of this tick whose resolver can be asked, and asked those whose
	// turn it was since all have had one.
	found []heldRecord
	asked map[string]bool
	// known are the runs that were found held, with the last tick. What a process remembers to
	// have reported is bounded, and after an outage more may be held than that.
	known map[report.Run]int
	n     int // the tick
}

// admitted is a tick that a shutdown waits for. A function of the program may end the goroutine.
func (r *reconciler) admitted(ctx context.Context) {
	defer r.engine.core.work.Leave()
	r.tick(ctx)
}

// tick reports what is held, and then asks resolvers until the next tick is due.
func (r *reconciler) tick(ctx context.Context) {
	end := time.Now().Add(r.every)
	r.reportGone(ctx)
	r.found = r.found[:0]
	maps.DeleteFunc(r.known, func(_ report.Run, last int) bool { return r.n-last > knownFor })
	held := store.Query{States: []store.State{store.Held}, Limit: reconcilePage}
	all := held
	held.Holding = true
	r.walk(ctx, held, &r.index, reconcilePages)
	if r.sweep != "" || r.n == 0 || r.n-r.swept >= sweepPause {
		if r.sweep == "" {
			r.swept = r.n
		}
		r.walk(ctx, all, &r.sweep, sweepPages)
	}
	if !r.away {
		r.lookForBirth(ctx)
	}
	for i := range r.found {
		h := &r.found[i]
		switch {
		case r.asked[h.Name]:
			continue
		case ctx.Err() != nil || time.Now().After(end):
			return
		}
		r.asked[h.Name] = true
		turn, over := context.WithTimeoutCause(ctx, r.every, errTurnOver)
		h.ask(turn)
		over()
	}
	clear(r.asked)
}

// reportGone reports, as one event of the last of them, which records the store has forgotten.
func (r *reconciler) reportGone(ctx context.Context) {
	known, gone := r.engine.core.witnesses.Hear(func(name string) (store.Record, error) {
		_, rec, err := r.engine.get(ctx, intent.Key{Record: name})
		return rec, err
	})
	if len(gone) == 0 {
		return
	}
	last := gone[len(gone)-1]
	r.engine.rules.Reporter.Observe(ctx, event.Event{
		Kind: event.RecordGone, Record: last.Name, Route: last.Route, Age: time.Since(last.Began),
		Err: fmt.Errorf("idempotency: the store has lost %d of the last %d records that this process has completed", len(gone), known+len(gone)),
	})
}

// lookForBirth reports if the store is another one than before, and once that nobody can tell.
func (r *reconciler) lookForBirth(ctx context.Context) {
	_, err := r.engine.LookForBirth(ctx)
	if err != nil && !r.unborn && ctx.Err() == nil {
		r.engine.reportUnborn(ctx, err)
	}
	r.unborn = err != nil
}

// walk looks at the next pages of a query, and begins again after the last one.
func (r *reconciler) walk(ctx context.Context, q store.Query, cursor *string, pages int) {
	for ; pages > 0 && ctx.Err() == nil; pages-- {
		q.Cursor = *cursor
		page, err := bounded(ctx, r.engine.core, "list", storeTimeout, func(ctx context.Context) (store.Page, error) {
			return r.lister.List(ctx, q)
		})
		switch {
		case errors.Is(err, store.ErrBadCursor) && q.Cursor != "": // the servers have changed
			*cursor = ""
			continue
		case err != nil:
			if ctx.Err() == nil && !r.away {
				r.away = true
				r.engine.rules.Reporter.Observe(ctx, event.Event{Kind: event.StoreError, Op: "list", Err: err})
			}
			return
		}
		r.away = false
		for i := range page.Entries {
			r.look(ctx, page.Entries[i].Key, page.Entries[i].Record)
		}
		if *cursor = page.Next; page.Next == "" {
			return
		}
	}
}

// look reports a record if it is held, and notes it if its resolver can be asked.
func (r *reconciler) look(ctx context.Context, name string, rec store.Record) {
	if rec.State != store.Held {
		return // a store that ignores the query
	}
	e := r.engine
	route := e.core.labelled.of(rec.Label)
	if route != nil {
		e = &Engine{e.core, route}
	}
	h := heldRecord{*e.access(ctx, e.identify(ctx, intent.Key{Record: name}, rec), rec.Label), rec}
	h.core.reportHoldEnding(name, &rec, h.Observe)
	run := report.Of(event.Held, name, &rec)
	_, known := r.known[run]
	r.known[run] = r.n
	if !known && h.core.reports.IsNew(run) {
		h.reportHeld(ctx)
	}
	if route != nil && route.Resolver != nil && h.ID.Record == "" {
		r.found = append(r.found, h)
	}
}

// A heldRecord is a held record whose key is known and whose route has a resolver.
type heldRecord struct {
	Access // by the rules of the route
	rec    store.Record
}

// Observe reports an event of the record.
func (h *heldRecord) Observe(e event.Event) {
	if e.OperationID == "" {
		e.OperationID = (&Engine{h.core, h.rules}).intentOf(h.ID, &h.rec).ID()
	}
	h.Access.Observe(e)
}

// reportHeld reports that the record is held. Its steps are read for that, and if they cannot be
// read it is reported all the same.
func (h *heldRecord) reportHeld(ctx context.Context) {
	e := event.Event{Kind: event.Held, Attempt: h.rec.Attempt, Held: true, Cause: note.FoundFor(&h.rec), Age: h.rec.Age, Trace: note.Last(h.rec.Notes).Trace}
	eng := &Engine{h.core, h.rules}
	_, rec, err := eng.get(ctx, h.ID)
	switch {
	case err == nil && rec.Attempt == h.rec.Attempt:
		steps := eng.stepsOf(h.ID, rec)
		e.Steps, e.InDoubt = steps.Recorded, steps.mayHave()
		if len(steps.InDoubt) > 0 {
			e.Cause = event.CauseStep
		}
	case (errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrUnreadableHere)) &&
		h.core.reports.IsNew(report.Of(event.Corrupt, h.Name, &h.rec)):
		h.Observe(event.Event{Kind: event.Corrupt, Op: "get", Attempt: h.rec.Attempt, Err: err})
	}
	h.Observe(e)
}

// ask asks the resolver of the route. Nothing can stop runtime.Goexit, which ends Reconcile.
func (h *heldRecord) ask(ctx context.Context) {
	returned := false
	defer func() {
		if !returned {
			h.Observe(event.Event{Kind: event.Unresolved, Attempt: h.rec.Attempt, Err: errResolverExited})
		}
	}()
	resolveHeld(ctx, &h.Access, h.Observe)
	returned = true
}

var errResolverExited = errors.New("idempotency: Reconcile ends, because the resolver called runtime.Goexit")
