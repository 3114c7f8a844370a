package simulation

import (
	"errors"
	"net/http"
	"time"

	"example.com/idempotency"
)

// A simKey is the ledger of one key: what the store must hold for it, as told by the
// calls that it has executed, and who has run. It is guarded by the world's mutex.
type simKey struct {
	index    int
	steps    bool   // its handler works in steps
	name     string // as the store knows it
	payload  int    // that it is bound to
	state    idempotency.State
	attempt  int
	owner    *simRequest
	until    time.Duration // end of the lease
	runs     []*simRun
	recorded map[string]string // steps, as stored
	// completed is the run whose answer is recorded.
	completed *simRun
}

// deliver executes a call and enters it into the ledger.
func (w *simulation) deliver(q *simRequest, op, name string, o idempotency.Owner, f func(*idempotency.MemoryStore) (idempotency.Record, error)) (idempotency.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := q.key
	if k.name == "" {
		k.name = name
	}
	if q.isNewOwner(o) && (len(q.owners) == 0 || len(q.owners) == 1 && q.displaced) {
		q.owners = append(q.owners, o)
	}
	if k.name != name || q.isNewOwner(o) {
		w.failf(k.index, "%v goes by another name or owner", q)
	}
	rec, err := f(w.store)
	note := "ok"
	if err != nil {
		note = err.Error()
	} else if op == "claim" {
		note = rec.State.String()
	}
	w.tell(q, op, rec.Attempt, note)
	if op == "complete" && err != nil {
		w.seen[simStale]++
	}
	if settles := op == "complete" || op == "release" || op == "hold"; settles {
		q.settled = q.settled || err == nil
		q.displaced = q.displaced || errors.Is(err, idempotency.ErrNotOwner)
	}
	switch {
	case op == "claim" && err != nil:
		w.failf(k.index, "a claim fails: %v", err)
	case op == "claim":
		w.claimed(k, q, rec)
	case err == nil:
		w.owned(k, q, op)
	}
	return rec, err
}

// claimed checks what a claim was told, and enters it.
func (w *simulation) claimed(k *simKey, q *simRequest, rec idempotency.Record) {
	lapsed := k.state == idempotency.StateClaimed && w.now() >= k.until
	hold := w.recovery == idempotency.Hold
	switch {
	case k.owner == nil:
		k.payload = q.payload
		w.granted(k, q, rec)
	case q.payload != k.payload:
		if rec.Mine {
			w.failf(k.index, "%v has the claim with another payload", q)
		}
	case k.owner == q && k.state == idempotency.StateClaimed:
		if !rec.Mine {
			w.failf(k.index, "%v is refused its own claim", q)
		}
		w.protects(k)
	case lapsed && hold:
		w.lapses(k)
		k.state = idempotency.StateHeld
	case lapsed:
		w.lapses(k)
		w.granted(k, q, rec)
	case rec.Mine && k.state == idempotency.StateReleased && k.owner != q:
		w.granted(k, q, rec)
	case rec.Mine:
		w.failf(k.index, "%v has the claim, and so has %v", q, k.owner)
	}
	state := k.state
	if state == idempotency.StateClaimed && w.now() >= k.until && hold {
		state = idempotency.StateHeld // also to those who may not touch it
	}
	if rec.State != state || rec.Attempt != k.attempt {
		w.failf(k.index, "the store says %v and %d, the ledger %v and %d", rec.State, rec.Attempt, state, k.attempt)
	}
}

func (w *simulation) granted(k *simKey, q *simRequest, rec idempotency.Record) {
	if !rec.Mine {
		w.failf(k.index, "%v is refused a free key", q)
	}
	k.owner, k.state = q, idempotency.StateClaimed
	k.attempt++
	w.protects(k)
}

// protects starts a lease anew, and checks at its end that a run which could not renew it
// knows that by then.
func (w *simulation) protects(k *simKey) {
	until, q := w.now()+w.lease, k.owner
	k.until = until
	time.AfterFunc(w.lease, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r := q.run
		if r == nil || r.outcome != 0 || k.owner != q || k.until != until || q.process.isDead() {
			return
		}
		if r.ctx.Err() == nil || r.op.Valid() {
			w.failf(k.index, "attempt %d believes that it has the claim", r.attempt)
		}
	})
}

// lapses checks that the owner, which has lost its claim, could not help it: its process
// died, or was cut off until it was too late for another try, or two calls went astray.
func (w *simulation) lapses(k *simKey) {
	q := k.owner
	if q.granted != k.attempt && (q.copied || q.granted > 0) {
		return // a claim came alive after its request was over: nobody knows of it
	}
	if q.run != nil {
		q.run.overtaken = true
		w.seen[simTakeovers]++
	}
	begin, astray := k.until-w.lease, 0
	for _, at := range q.astray {
		if at >= begin {
			astray++
		}
	}
	const pauseAndTimeout = 2*time.Second + 2*time.Second + 10*time.Millisecond
	tooLate := max(begin, k.until-w.lease/10-pauseAndTimeout)
	if q.granted != k.attempt {
		tooLate = begin - 2*w.lease // it was held up, and its guard has given up on it
	}
	weather := q.process.weather
	if !q.process.isDead() && astray < 2 &&
		!overlaps(weather.pauses, tooLate, k.until) && !overlaps(weather.outages, tooLate, k.until) {
		w.failf(k.index, "%v has let its lease lapse", q)
	}
}

// owned checks and enters a call that the store has accepted from an owner.
func (w *simulation) owned(k *simKey, q *simRequest, op string) {
	if k.owner != q {
		w.failf(k.index, "%s is accepted from %v, and %v has the claim", op, q, k.owner)
	}
	r := q.run
	if r == nil && op != "release" {
		w.failf(k.index, "%s for %v, which has never run", op, q)
		return
	}
	unknown := r != nil && r.outcome == idempotency.Unknown
	hold := w.recovery == idempotency.Hold
	switch op {
	case "renew":
		w.protects(k)
	case "complete":
		if r.outcome != idempotency.Final {
			w.failf(k.index, "%v is completed, but %v", q, r.outcome)
		}
		if k.cameAfter(r) && r.status >= http.StatusBadRequest && k.completed == nil {
			w.failf(k.index, "%v has the last word with a refusal, and attempt %d came after it", q, k.attempt-1)
		}
		k.state, k.completed = idempotency.StateCompleted, r
	case "hold":
		if !unknown || !hold {
			w.failf(k.index, "%v is held, but %v", q, r.outcome)
		}
		k.state = idempotency.StateHeld
	case "release":
		if r == nil {
			w.seen[simGhosts]++
		} else if r.outcome == idempotency.Final && r.status >= http.StatusBadRequest && k.cameAfter(r) {
			w.seen[simGaveWay]++
		} else if r.outcome != idempotency.NotExecuted && (!unknown || hold) {
			w.failf(k.index, "%v is released, but %v", q, r.outcome)
		}
		k.state = idempotency.StateReleased
	}
}

// cameAfter reports whether the key was claimed again after the claim of a run.
func (k *simKey) cameAfter(r *simRun) bool { return k.attempt > r.attempt }

// holds reports whether the store protects the claim of a request from all others.
func (w *simulation) holds(q *simRequest) bool {
	k := q.key
	return k.owner == q && k.state == idempotency.StateClaimed && w.now() < k.until
}

// start checks what must be true whenever a handler starts.
func (w *simulation) start(r *simRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q, k := r.request, r.request.key
	w.tell(q, "starts", r.attempt, "")
	w.seen[simRuns]++
	if q.granted != r.attempt || q.run != nil || !w.holds(q) {
		w.failf(k.index, "%v runs without a claim", q)
	}
	if q.payload != k.payload {
		w.failf(k.index, "%v runs with a payload that the key is not bound to", q)
	}
	if k.completed != nil {
		w.failf(k.index, "%v runs after an answer was recorded", q)
	}
	for _, before := range k.runs {
		switch {
		case before.attempt >= r.attempt:
			w.failf(k.index, "attempt %d runs after attempt %d", r.attempt, before.attempt)
		case before.outcome == idempotency.NotExecuted:
		case w.recovery == idempotency.Hold:
			w.failf(k.index, "%v runs although the outcome of attempt %d is unknown", q, before.attempt)
		case before.outcome != idempotency.Unknown && !before.overtaken:
			w.failf(k.index, "%v runs although attempt %d is %v", q, before.attempt, before.outcome)
		case before.outcome == 0 && !before.request.process.isDead() && (before.ctx.Err() == nil || before.op.Valid()):
			w.failf(k.index, "%v runs and attempt %d was not told to stop", q, before.attempt)
		}
	}
	q.run = r
	k.runs = append(k.runs, r)
}

// effect checks what must be true whenever a run does something, or a step of it.
func (w *simulation) effect(r *simRun, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := r.request.key
	w.tell(r.request, "effect", r.attempt, step)
	if (r.op.Valid() || r.ctx.Err() == nil) && !w.holds(r.request) {
		w.failf(k.index, "attempt %d believes that it has the claim", r.attempt)
	}
	if value, ok := k.recorded[step]; ok {
		w.failf(k.index, "step %s runs again, recorded is %s", step, value)
	}
}

// definite reports whether an answer is one that a client stops at.
func definite(status int, h http.Header) bool {
	return status < http.StatusInternalServerError && status != http.StatusTooManyRequests && h.Get("X-Run") != ""
}

// shown checks the moment at which a client sees the first byte of an answer. It is
// recorded by then, unless it is sent while the run goes on, or the store was away for
// longer than clients are kept waiting, and even then nobody has taken over.
func (w *simulation) shown(q *simRequest, h http.Header, status int) {
	if q.process.isDead() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := q.key
	if q.run != nil && h.Get("X-Run") == q.run.name() && q.displaced && !q.settled && k.completed != nil && k.completed != q.run &&
		!q.run.conduct.isSent() {
		w.failf(k.index, "%v is shown %d of its own, and the answer of attempt %d is recorded", q, status, k.completed.attempt)
	}
	if !definite(status, h) {
		return
	}
	switch {
	case k.completed != nil && k.completed.name() == h.Get("X-Run"):
	case q.run == nil || q.run.name() != h.Get("X-Run"):
		w.failf(k.index, "%v is shown an answer of %s", q, h.Get("X-Run"))
	case q.run.conduct.isSent() || q.run.conduct == runShort:
	case q.delayed && k.owner == q:
		w.seen[simPending]++
	default:
		w.failf(k.index, "%v is shown an answer that is not recorded", q)
	}
}

// checkAnswer checks an answer that is no problem, and reports whether it is the last word.
func (w *simulation) checkAnswer(q *simRequest, status int, h http.Header, body string) bool {
	if !definite(status, h) || h.Get("Content-Length") == "1000" {
		return false
	}
	k := q.key
	for _, r := range k.runs {
		if r.name() != h.Get("X-Run") {
			continue
		}
		if r.outcome != idempotency.Final || status != r.status || body != r.body {
			w.failf(k.index, "%v gets %d %q, the answer of attempt %d is %d %q", q, status, body, r.attempt, r.status, r.body)
		}
		return true
	}
	w.failf(k.index, "%v gets the answer of %s", q, h.Get("X-Run"))
	return true
}
