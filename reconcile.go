package idempotency

import (
	"context"
	"errors"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"
)

// This file looks after held keys without waiting for a client: Reconcile, and the resolvers that
// it asks.

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

// Reconcile looks for held keys, at once and then every so often, until ctx ends or
// [Guard.Shutdown] begins. So a key is reported, and settled if it can be, although no client comes
// back for it. Run it in a goroutine of its own, in each process or in one.
//
// It reports each run that is held as [event.Held], once in each process, and as [event.HoldEnding]
// before the hold ends. Among them are the runs of processes that have died, when their lease has
// ended. Then it asks the resolver of the record's route, as a request with the key would, and
// settles the key by what the resolver says: see [WithResolver]. The resolver is that of the guard
// that has the record's label ([WithRoute]), made by [New] or [Guard.With] with the same store. If
// several guards with a resolver have one label, the last one that was made is asked. It gets ctx,
// and its panic is an error. A key whose route has no label, no resolver, or keeps no keys
// ([WithKeptKeys]) is only reported.
//
// A tick asks resolvers for as long as every says, and the keys that are left have their turn at the
// next. It reads the store's index of held records. Besides, it walks slowly through all
// records, some thousands in each tick, because an index may have lost one.
//
// If the store fails, the next tick goes on. That is reported once, as event.StoreError with the Op
// "list", until the store works again. Several processes may reconcile at once: one of them settles
// a key, and the others find it settled, or say the same.
//
// Reconcile returns nil when it ends. It returns an error at once if the store is not a [store.Lister]
// ([ErrNoLister]) or every is not positive. A resolver that calls runtime.Goexit ends the goroutine
// of Reconcile; that is reported as event.StoreError with the Op "resolve".
func (g *Guard) Reconcile(ctx context.Context, every time.Duration) error {
	lister, ok := g.core.store.(store.Lister)
	if !ok {
		return fmt.Errorf("idempotency: Reconcile: %w", ErrNoLister)
	}
	if every <= 0 {
		return fmt.Errorf("idempotency: Reconcile: every %v is not positive", every)
	}
	r := reconciler{guard: g, lister: lister, asked: make(map[string]bool), known: make(map[report]int)}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for ; ctx.Err() == nil && g.core.work.admit(); r.n++ {
		r.admitted(ctx, time.Now().Add(every))
		select {
		case <-ticker.C:
		case <-ctx.Done():
		case <-g.core.work.quit:
		}
	}
	return nil
}

// A reconciler is one call of Reconcile.
type reconciler struct {
	guard  *Guard
	lister store.Lister
	// index and sweep are where the walks go on.
	index, sweep string
	swept        int  // the tick in which the sweep began
	away         bool // the store has failed, and that is reported
	// found are the held records of this tick whose resolver can be asked, and asked those whose
	// turn it was since all have had one.
	found []heldRecord
	asked map[string]bool
	// known are the runs that were found held, with the last tick. What a process remembers to
	// have reported is bounded, and after an outage more may be held than that.
	known map[report]int
	n     int // the tick
}

// A heldRecord is a held record whose key is known and whose route has a resolver.
type heldRecord struct {
	guard  *Guard // of the route
	access access
	rec    store.Record
}

// admitted is a tick that a shutdown waits for. A function of the program may end the goroutine.
func (r *reconciler) admitted(ctx context.Context, end time.Time) {
	defer r.guard.core.work.leave()
	r.tick(ctx, end)
}

// tick reports what is held, and then asks resolvers until the end.
func (r *reconciler) tick(ctx context.Context, end time.Time) {
	r.found = r.found[:0]
	maps.DeleteFunc(r.known, func(_ report, last int) bool { return r.n-last > knownFor })
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
	for i := range r.found {
		h := &r.found[i]
		switch {
		case r.asked[h.access.key]:
			continue
		case r.over(ctx) || time.Now().After(end):
			return
		}
		r.asked[h.access.key] = true
		h.ask(ctx)
	}
	clear(r.asked)
}

// over reports whether Reconcile is to end.
func (r *reconciler) over(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	case <-r.guard.core.work.quit:
		return true
	default:
		return false
	}
}

// walk looks at the next pages of a query, and begins again after the last one.
func (r *reconciler) walk(ctx context.Context, q store.Query, cursor *string, pages int) {
	for ; pages > 0 && !r.over(ctx); pages-- {
		q.Cursor = *cursor
		page, err := bounded(ctx, r.guard.core, storeTimeout, func(ctx context.Context) (store.Page, error) {
			return r.lister.List(ctx, q)
		})
		switch {
		case errors.Is(err, store.ErrBadCursor) && q.Cursor != "": // the servers have changed
			*cursor = ""
			continue
		case err != nil:
			if ctx.Err() == nil && !r.away {
				r.away = true
				r.guard.set.observe(ctx, event.Event{Kind: event.StoreError, Op: "list", Err: err})
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
	g, c := r.guard, r.guard.core
	route := c.resolvers.of(rec.Label)
	if route != nil {
		g = route
	}
	h := heldRecord{guard: g, rec: rec, access: access{
		core: c, set: &g.set, id: g.identify(ctx, Key{Record: name}, rec), key: name, client: ctx, route: rec.Label,
	}}
	c.reportHoldEnding(name, &rec, h.observe)
	run := reportOf(event.Held, name, &rec)
	_, known := r.known[run]
	r.known[run] = r.n
	if !known && c.reports.isNew(run) {
		h.reportHeld(ctx)
	}
	if route != nil && h.access.id.Record == "" {
		r.found = append(r.found, h)
	}
}

// observe reports an event of the record.
func (h *heldRecord) observe(e event.Event) {
	if e.OperationID == "" {
		e.OperationID = h.access.set.operationID(h.access.id, h.rec.Fingerprint)
	}
	h.access.observe(e)
}

// reportHeld reports that the record is held. Its steps are read for that, and if they cannot be
// read it is reported all the same.
func (h *heldRecord) reportHeld(ctx context.Context) {
	e := event.Event{Kind: event.Held, Attempt: h.rec.Attempt, Held: true, Age: h.rec.Age, Trace: lastNote(h.rec.Notes).trace}
	_, rec, err := h.guard.get(ctx, h.access.id)
	switch {
	case err == nil && rec.Attempt == h.rec.Attempt:
		e.Steps = h.access.set.stepNames(h.access.id, rec)
	case (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnreadableHere)) &&
		h.access.core.reports.isNew(reportOf(event.Corrupt, h.access.key, &h.rec)):
		h.observe(event.Event{Kind: event.Corrupt, Op: "get", Attempt: h.rec.Attempt, Err: err})
	}
	h.observe(e)
}

// ask asks the resolver of the route. A panic of it ends here: nobody recovers in this goroutine,
// and the next process would meet the same key. Nothing can stop runtime.Goexit, which ends
// Reconcile.
func (h *heldRecord) ask(ctx context.Context) {
	returned := false
	defer func() {
		err := errResolverExited
		switch p := recover(); {
		case returned:
			return
		case p != nil:
			err = fmt.Errorf("idempotency: the resolver panicked: %v\n%s", p, debug.Stack())
		}
		h.observe(event.Event{Kind: event.StoreError, Op: "resolve", Attempt: h.rec.Attempt, Err: err})
	}()
	h.guard.resolveHeld(ctx, &h.access, h.observe)
	returned = true
}

var errResolverExited = errors.New("idempotency: Reconcile ends, because the resolver called runtime.Goexit")

// resolvers are the guards that have a resolver and a label, by the label.
type resolvers struct {
	mu     sync.Mutex
	guards map[string]*Guard
}

// add enters a guard, if it has both.
func (r *resolvers) add(g *Guard) {
	if g.set.resolver == nil || g.set.route == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guards == nil {
		r.guards = make(map[string]*Guard)
	}
	r.guards[g.set.route] = g
}

// of returns the guard of a label, or nil.
func (r *resolvers) of(label string) *Guard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guards[label]
}
