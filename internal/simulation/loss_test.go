package simulation

import (
	"context"
	"io"
	"net/http"
	"time"

	"example.com/idempotency"
)

// lose makes the store forget a record, or all of them, a few times: before, during and after
// runs. The guards cannot know.
func (w *simulation) lose() {
	d := w.dice(ofLoss)
	for range 1 + d.IntN(3) {
		time.Sleep(d.upTo(2 * w.lease))
		all, one := d.oneIn(2), d.IntN(len(w.keys))
		w.mu.Lock()
		for _, k := range w.keys {
			if k.state != 0 && (all || k.index == one) && w.now() < w.calm {
				w.seen[simVanished]++
				w.events = append(w.events, simEvent{at: w.now(), key: k.index, what: "the record vanishes"})
				k.vanish()
			}
		}
		w.mu.Unlock()
	}
}

// unprotected is a run that a guard has let through because the store was away. It has no
// attempt, and its client asks again.
func (w *simulation) unprotected(rw http.ResponseWriter, r *http.Request) {
	w.bookUnprotected(r.Context(), requestOf(r.Context()))
	rw.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(rw, "charged by nobody")
}

func (w *simulation) bookUnprotected(ctx context.Context, q *simRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell(q, "runs unprotected", 0, "")
	w.seen[simUnprotected]++
	if !w.failsOpen() {
		w.failf(q.key.index, "%v runs without a claim", q)
	}
	if q.told {
		w.failf(q.key.index, "%v runs without a claim although there is a record", q)
	}
	for _, step := range q.key.steps() {
		w.bank.book(w, q.key, q.payload, "", idempotency.DeriveKey(ctx, "charge "+step), step)
	}
}
