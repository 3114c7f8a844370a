package simulation

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A simKey is the ledger of one key, guarded by the world's mutex.
type simKey struct {
	index   int
	inSteps bool            // its handler works in steps
	name    string          // as guards know it
	bound   map[int]bool    // the payloads that it was ever bound to
	answers map[string]bool // the runs whose answer has been recorded, by name
	all     []*simRun
	claims  map[store.Owner]int // the payloads of those that were granted
	life    int                 // counts the records that have vanished or ended
	lost    int                 // counts those that have vanished
	simRecord
}

// A simRecord is what the store must hold for a key, as told by the calls that it has
// executed, and who has run under it. The zero State means that there is none.
type simRecord struct {
	payload  int // that it is bound to
	state    store.State
	attempt  int
	owner    *simRequest
	token    store.Owner   // as which it has claimed
	last     store.Owner   // the token of the last claim, also when somebody has decided about it
	lease    time.Duration // of its last claim
	hold     bool          // its last claim says so
	until    time.Duration // end of the lease
	runs     []*simRun
	recorded map[string]string // steps, as stored
	// completed is the run whose answer is recorded.
	completed *simRun

	blank   bool          // nothing can have been done under it
	unbound bool          // it was released so that the next claim binds it
	ends    time.Duration // if it was released, and is blank
}

// A simCall is a call of the store on its way.
type simCall struct {
	op, key string
	bytes   int         // that are sent
	owner   store.Owner // not of an operator's call
	claim   store.Claim // of a claim
	release store.Release
	// resolution is an operator's decision, as a run with that answer.
	resolution *simRun
	execute    func(s *idempotency.MemoryStore, key string) (store.Record, error)
}

func newSimKey(index int, inSteps bool) *simKey {
	k := &simKey{index: index, inSteps: inSteps, bound: map[int]bool{}, answers: map[string]bool{}, claims: map[store.Owner]int{}}
	k.vanish()
	return k
}

// vanish makes the ledger one of a key whose record the store has lost. From then on the key
// has another name there.
func (k *simKey) vanish() {
	k.lost++
	k.end()
}

// end makes the ledger one of a key that has no record.
func (k *simKey) end() {
	k.life++
	k.simRecord = simRecord{recorded: map[string]string{}}
}

// endsUndone ends a record under which nothing was done, if it is time.
func (w *simulation) endsUndone(k *simKey) {
	if k.state != store.Released || !k.blank || w.now() < k.ends {
		return
	}
	for _, r := range k.runs {
		if r.outcome != idempotency.NotExecuted && !w.isUndone(r) {
			w.failf(k.index, "nothing is left of attempt %d, which is %v", r.attempt, r.outcome)
		}
	}
	w.seen[simEnded]++
	k.end()
}

// steps are the effects of a run.
func (k *simKey) steps() []string {
	if k.inSteps {
		return []string{"reserve", "charge"}
	}
	return []string{""}
}

func (k *simKey) stored() string { return fmt.Sprintf("%s#%d", k.name, k.lost) }

// lapsed reports whether the record is claimed and its lease has ended.
func (k *simKey) lapsed(now time.Duration) bool {
	return k.state == store.Claimed && now >= k.until
}

// held reports whether the record is held, or will be when the next claim finds it.
func (k *simKey) held(now time.Duration) bool {
	return k.state == store.Held || k.hold && k.lapsed(now)
}

// deliver executes a call and enters it into the ledger.
func (w *simulation) deliver(q *simRequest, c *simCall) (store.Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := q.key
	if k.name == "" {
		k.name = c.key
	}
	if k.name != c.key || c.owner != (store.Owner{}) && !q.goesBy(c.owner) {
		w.failf(k.index, "%v goes by another name or owner", q)
	}
	w.endsUndone(k)
	rec, err := c.execute(w.store, k.stored())
	note := "ok"
	if err != nil {
		note = err.Error()
	} else if c.op == "claim" || c.op == "get" {
		note = rec.State.String()
	}
	w.tell(q, c.op, rec.Attempt, note)
	if c.op == "complete" && err != nil {
		w.seen[simStale]++
	}
	if settles := c.op == "complete" || c.op == "commit" || c.op == "release" || c.op == "hold"; settles {
		q.settled = q.settled || err == nil
		q.displaced = q.displaced || errors.Is(err, store.ErrNotOwner)
	}
	switch {
	case c.op == "claim" && err != nil:
		w.failf(k.index, "a claim fails: %v", err)
	case c.op == "claim":
		w.claimed(k, q, c, rec)
	case c.op == "get" || c.op == "begin" || c.op == "undo" || err != nil:
	case c.op == "resolve" || c.op == "forget":
		w.decided(k, q, c)
	default:
		w.owned(k, q, c)
	}
	return rec, err
}

// goesBy reports whether a request may make a call as that owner: it is always the same one,
// until the request asks for a claim again that it has lost.
func (q *simRequest) goesBy(o store.Owner) bool {
	known := slices.Contains(q.owners, o)
	if !known && (len(q.owners) == 0 || len(q.owners) == 1 && q.displaced) {
		q.owners = append(q.owners, o)
		return true
	}
	return known
}

// claimed checks what a claim was told, and enters it.
func (w *simulation) claimed(k *simKey, q *simRequest, c *simCall, rec store.Record) {
	if k.unbound && k.state == store.Released && k.token != c.owner && q.payload != k.payload {
		w.seen[simRebound]++
		k.payload = q.payload
	}
	defer func() { k.bound[k.payload] = true }()
	switch lapsed := k.lapsed(w.now()); {
	case k.state == 0:
		k.payload, k.blank = q.payload, true
		w.granted(k, q, c, rec)
	case q.payload != k.payload || rec.Fingerprint != c.claim.Fingerprint:
		q.supplanted = q.run != nil
		if rec.Mine {
			w.failf(k.index, "%v has the claim with another payload", q)
		}
	case k.token == c.owner && k.state == store.Claimed:
		if !rec.Mine {
			w.failf(k.index, "%v is refused its own claim", q)
		}
		w.protects(k, c)
	case w.kind == joined && c.claim.Hold:
		w.failf(k.index, "a claim of %v says Hold", q)
	case lapsed && (k.hold || c.claim.Hold):
		w.lapses(k)
		k.state = store.Held
	case lapsed:
		w.lapses(k)
		k.blank, k.unbound = false, false
		w.granted(k, q, c, rec)
	case rec.Mine && k.state == store.Released && k.token != c.owner:
		w.granted(k, q, c, rec)
	case rec.Mine:
		w.failf(k.index, "%v has the claim, and so has %v", q, k.owner)
	}
	state := k.state
	if k.held(w.now()) {
		state = store.Held // also to those who may not touch it
	}
	if rec.State != state || rec.Attempt != k.attempt {
		w.failf(k.index, "the store says %v and %d, the ledger %v and %d", rec.State, rec.Attempt, state, k.attempt)
	}
}

func (w *simulation) granted(k *simKey, q *simRequest, c *simCall, rec store.Record) {
	if !rec.Mine {
		w.failf(k.index, "%v is refused a free key", q)
	}
	k.owner, k.token, k.last, k.state, q.life = q, c.owner, c.owner, store.Claimed, k.life
	k.claims[c.owner] = q.payload
	k.attempt++
	w.protects(k, c)
}

// protects starts the lease of a claim.
func (w *simulation) protects(k *simKey, c *simCall) {
	k.lease, k.hold = c.claim.Lease, c.claim.Hold
	w.renews(k)
}

// renews starts a lease anew, and checks at its end that a run which could not renew it
// knows that by then.
func (w *simulation) renews(k *simKey) {
	until, q := w.now()+k.lease, k.owner
	k.until = until
	time.AfterFunc(k.lease, func() {
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
	if q.settled || (q.copied || q.displaced) && k.life > 1 {
		return // likewise, in a record that was made anew
	}
	begin, astray := k.until-k.lease, 0
	for _, at := range q.astray {
		if at >= begin-min(2*time.Second, k.lease/3) { // its guard still waited for it when the lease began
			astray++
		}
	}
	const pauseAndTimeout = 2*time.Second + 2*time.Second + 10*time.Millisecond
	tooLate := max(begin, k.until-k.lease/10-pauseAndTimeout)
	if q.granted != k.attempt {
		tooLate = begin - 2*k.lease // it was held up, and its guard has given up on it
	}
	weather := q.process.weather
	if !q.process.isDead() && !w.ending && astray < 2 && w.kind != distant && !overlaps(weather.pauses, tooLate, k.until) && !overlaps(weather.outages, tooLate, k.until) {
		w.failf(k.index, "%v has let its lease lapse", q)
	}
}

// owned checks and enters a call that the store has accepted from an owner.
func (w *simulation) owned(k *simKey, q *simRequest, c *simCall) {
	if k.owner != q {
		w.failf(k.index, "%s is accepted from %v, and %v has the claim", c.op, q, k.owner)
	}
	r := q.run
	if r == nil && c.op != "release" {
		w.failf(k.index, "%s for %v, which has never run", c.op, q)
		return
	}
	unknown := r != nil && r.outcome == idempotency.Unknown
	hold := q.process.recovery == idempotency.Hold
	switch c.op {
	case "renew":
		w.renews(k)
	case "commit":
		w.committed(k, r)
	case "complete":
		w.completesAlone(r)
		if r.outcome != idempotency.Final {
			w.failf(k.index, "%v is completed, but %v", q, r.outcome)
		}
		if k.cameAfter(r) && r.status >= http.StatusBadRequest && k.completed == nil {
			w.failf(k.index, "%v has the last word with a refusal, and attempt %d came after it", q, k.attempt-1)
		}
		k.completes(r)
		if r.conduct == runBulky {
			w.seen[simBulky]++
		}
	case "hold":
		if !unknown || !hold {
			w.failf(k.index, "%v is held, but %v", q, r.outcome)
		}
		k.state = store.Held
	case "release":
		if r == nil {
			w.seen[simGhosts]++
		} else if r.outcome == idempotency.Final && r.status >= http.StatusBadRequest && k.cameAfter(r) {
			w.seen[simGaveWay]++
		} else if r.outcome != idempotency.NotExecuted && (!unknown || hold) && !w.isUndone(r) && !w.isForgotten(r) {
			w.failf(k.index, "%v is released, but %v", q, r.outcome)
		}
		if c.release.Undone && r != nil && r.outcome != idempotency.NotExecuted && !w.isUndone(r) && !w.isForgotten(r) {
			w.failf(k.index, "%v is released as if it had done nothing, but %v", q, r.outcome)
		}
		if c.release.Unbind && (r == nil || c.release.Unused) {
			w.failf(k.index, "%v unbinds the key, and has not run", q)
		}
		w.released(k, c)
	}
}

// released enters a release. Only of a blank record does it say more.
func (w *simulation) released(k *simKey, c *simCall) {
	if k.state == store.Released {
		return // it is repeated
	}
	k.state, k.blank = store.Released, k.blank && c.release.Undone
	k.unbound = k.blank && (c.release.Unbind || c.release.Unused && k.unbound)
	if k.blank {
		k.ends = w.now() + c.release.Keep
	}
}

// completes enters the answer of a run.
func (k *simKey) completes(r *simRun) {
	k.state, k.completed = store.Completed, r
	k.answers[r.name()] = true
}

// cameAfter reports whether the key was claimed by others after the claim of a run, as far as
// the record tells.
func (k *simKey) cameAfter(r *simRun) bool {
	if k.life != r.life {
		return k.attempt > 1
	}
	return k.attempt > r.attempt
}

// holds reports whether the store protects the claim of a request from all others, as far as
// anybody can know: nobody is told that a record has vanished.
func (w *simulation) holds(q *simRequest) bool {
	k := q.key
	return q.life != k.life || k.owner == q && k.state == store.Claimed && w.now() < k.until
}

// start checks what must be true whenever a handler starts.
func (w *simulation) start(r *simRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q, k := r.request, r.request.key
	w.tell(q, "starts", r.attempt, "")
	w.seen[simRuns]++
	r.life = q.life
	if q.granted != r.attempt || q.run != nil || !w.holds(q) {
		w.failf(k.index, "%v runs without a claim", q)
	}
	k.all = append(k.all, r)
	q.run = r
	if q.life != k.life {
		return // its record has vanished meanwhile, and it cannot know
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
		case before.outcome == idempotency.NotExecuted || before.cleared || before.outcome != 0 && w.isUndone(before):
		case before.request.process.recovery == idempotency.Hold && w.kind != joined:
			w.failf(k.index, "%v runs although the outcome of attempt %d is unknown", q, before.attempt)
		case before.outcome != idempotency.Unknown && !before.overtaken:
			w.failf(k.index, "%v runs although attempt %d is %v", q, before.attempt, before.outcome)
		case before.outcome == 0 && !before.request.process.isDead() && (before.ctx.Err() == nil || before.op.Valid()):
			w.failf(k.index, "%v runs and attempt %d was not told to stop", q, before.attempt)
		}
	}
	k.runs = append(k.runs, r)
}

// effect checks what must be true whenever a run does something, or a step of it.
func (w *simulation) effect(r *simRun, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := r.request.key
	w.tell(r.request, "effect", r.attempt, step)
	w.bank.book(w, k, r.request.payload, r.op.ID(), idempotency.DeriveKey(r.ctx, "charge "+step), step)
	if (r.op.Valid() || r.ctx.Err() == nil) && !w.holds(r.request) {
		w.failf(k.index, "attempt %d believes that it has the claim", r.attempt)
	}
	if value, ok := k.recorded[step]; ok && r.life == k.life {
		w.failf(k.index, "step %s runs again, recorded is %s", step, value)
	}
}

// definite reports whether an answer is one that a client stops at.
func definite(status int, h http.Header) bool {
	return h.Get(problem.Header) == "" && status < http.StatusInternalServerError && status != http.StatusTooManyRequests && h.Get("X-Run") != ""
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
		!q.run.conduct.isSent() && q.run.life == k.life {
		w.failf(k.index, "%v is shown %d of its own, and the answer of attempt %d is recorded", q, status, k.completed.attempt)
	}
	if !definite(status, h) {
		return
	}
	switch {
	case k.completed != nil && k.completed.name() == h.Get("X-Run"):
	case q.life != k.life && k.answers[h.Get("X-Run")]: // it was recorded, and vanished on the way
	case q.run == nil || q.run.name() != h.Get("X-Run"):
		w.failf(k.index, "%v is shown an answer of %s", q, h.Get("X-Run"))
	case q.run.conduct.isSent() || q.run.conduct == runShort:
	case q.run.wasReady():
		w.failf(k.index, "%v is shown an answer that may not be committed", q)
	case q.supplanted && k.life != q.life: // it cannot be recorded any more
		w.seen[simSupplanted]++
	case q.delayed && (k.owner == q || k.life != q.life): // nobody is told that a record has vanished
		w.seen[simPending]++
	default:
		w.failf(k.index, "%v is shown an answer that is not recorded", q)
	}
}

// checkWord checks what a client makes of an answer that runs package client. It never concludes that
// nothing was done if its request has run and may have had an effect, nor from an answer that no
// record bears out that there is nothing left to do.
func (w *simulation) checkWord(q *simRequest, got guardtest.Reply) {
	r := q.run
	if q.passed != nil {
		r = q.passed.run
	}
	if r == nil || r.outcome == idempotency.NotExecuted || w.isUndone(r) {
		return
	}
	verdict := client.Classify(&http.Response{StatusCode: got.Status, Header: got.Header, Body: io.NopCloser(strings.NewReader(got.Body))}, nil)
	// A gateway's client does not see that the answer which it gets is a record's.
	denies := got.Problem.Code == "" && !q.key.answers[got.Header.Get("X-Run")] &&
		(got.Status >= http.StatusBadRequest || got.Status == http.StatusPermanentRedirect)
	if verdict == client.Retry || got.Problem.Code == problem.KeyReused ||
		verdict == client.Settled && denies && r.outcome == idempotency.Unknown {
		w.failf(q.key.index, "the run of %v is %v, and its client is told %d %s: %v", q, r.outcome, got.Status, got.Problem.Code, verdict)
	}
	if r.outcome == idempotency.Unknown {
		w.seen[simInDoubt]++
	}
}

// checkAnswer checks an answer that is no problem, and reports whether it is the last word.
func (w *simulation) checkAnswer(q *simRequest, status int, h http.Header, body string) bool {
	if !definite(status, h) || h.Get("Content-Length") == "1000" {
		return false
	}
	k := q.key
	for _, r := range k.all {
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
