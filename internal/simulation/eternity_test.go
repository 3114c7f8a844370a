package simulation

import (
	"context"
	"time"

	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// lookLater comes back when every limit has passed: a lease, a day, a weekend, a year. What
// was held then is held still, and a client that asks for it hears that. Nobody has run.
func (w *simulation) lookLater() {
	var held []*simKey
	w.mu.Lock()
	for _, k := range w.keys {
		if k.held(w.now()) {
			held = append(held, k)
		}
	}
	w.mu.Unlock()
	for n, pause := range []time.Duration{w.lease, 25 * time.Hour, 3 * 24 * time.Hour, 366 * 24 * time.Hour} {
		time.Sleep(pause)
		for _, k := range held {
			rec, err := w.store.Get(context.Background(), k.stored())
			if err != nil || rec.State != store.Held {
				w.failf(k.index, "what was held is %v, %v", rec.State, err)
			}
			w.askLater(k, n)
		}
	}
	w.seen[simHeldForever] += len(held)
}

// askLater sends a request for a held key to a new process.
func (w *simulation) askLater(k *simKey, n int) {
	const latecomer = 60
	p := w.process(0)
	q := &simRequest{client: latecomer, op: n, key: k, payload: k.payload, process: p, calls: map[string]int{}}
	runs := len(k.all)
	got, ok := w.ask(context.Background(), q)
	inVain := w.kind == mixed && got.Problem.Code == problem.StoreUnavailable // another version could tell
	if !ok || got.Problem.Code != problem.OutcomeUnknown && !inVain || len(k.all) != runs {
		w.failf(k.index, "what was held is answered with %d %s, and there are %d runs", got.Status, got.Body, len(k.all)-runs)
	}
	_ = p.guard.Shutdown(context.Background())
}

// checkNothingIsHeldForNothing is what has to be true a lease after all faults: where a process
// has lived on and nothing has run, its key is free. The exception is a claim that arrives when
// its request is over, was given back, and others have claimed since: nobody knows of it.
func (w *simulation) checkNothingIsHeldForNothing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		q := k.owner
		if k.held(w.now()) && q != nil && q.run == nil && !q.process.isDead() && !q.copied && !q.settled {
			w.failf(k.index, "%v holds the key, and nothing has run", q)
		}
	}
}
