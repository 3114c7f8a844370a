package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/reread"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A decision is what a request gets, and what acting on it needs. It is made without a
// ResponseWriter. The zero decision lets the request pass.
type decision struct {
	kind kind
	// echo is the value that every answer to a valid key repeats, as it came.
	echo string
	// id is the key, as far as it is known, and key its name in the store, once the store
	// is asked.
	id  intent.Key
	key string
	// body is that of a request whose handler will run.
	body requestBody
	// lease is the request's claim, once the store has been asked.
	lease *engine.Lease
	// answered says that the request is answered from a record, and has no use for its lease.
	answered bool
	// problem is what a refused request gets. cause is for the log: the error of the route's function
	// that it comes from, or the mistake of the program.
	problem refusal
	cause   error
	// answer is what is replayed.
	answer answer.Answer
	// attempt, age and notes are those of the record that the request is answered from.
	attempt int
	age     time.Duration
	notes   []byte
	// differs says what makes this another request than the one that the key is bound to.
	differs event.RequestParts
	// waited is how long the request waited for another run.
	waited time.Duration
	fields *answer.Space // memory of the answer's fields
	// goodFor is how much longer the key is good, as far as the client is told: zero if not.
	goodFor time.Duration
	// admitted says that the request counts as work until it is answered.
	admitted bool
}

type kind uint8

const (
	pass     kind = iota // to the handler, untouched
	passRead             // to the handler, with its body put back
	failOpen             // to the handler, unprotected because the store is unavailable
	refuse               // with a problem
	replay               // the recorded answer
	execute              // the handler, under the claim
)

func (d *decision) refuse(code problem.Code) { d.kind, d.problem = refuse, problem.New(code) }

// refuseFor refuses a request because a function of the route returned an error. The code is
// for an error of no special kind.
func (d *decision) refuseFor(cause error, code problem.Code) {
	if errors.Is(cause, ErrTryLater) {
		code = problem.TryLater
	}
	d.refuse(code)
	d.cause = cause
}

// leave is called when the request has been answered.
func (d *decision) leave(rt *route) {
	d.fields.Free()
	if d.answered {
		d.lease.Free()
	}
	if d.admitted {
		rt.engine.Leave()
	}
}

// claim asks the store for the key, and decides by what it says.
func (rt *route) claim(r *http.Request, body *requestBody, id engine.Identity, d *decision) {
	d.key = d.id.Name()
	now := time.Now()
	l := rt.engine.NewLease(now, engine.Access{ID: d.id, Name: d.key, Client: r.Context(), Method: r.Method, Route: rt.set.routeOf(r)}, id)
	d.lease = l
	if rt.set.reference != nil {
		l.Refer(reread.Ask(rt.set.reference, r, body.bytes))
	}
	if err := l.KeepKey(); err != nil {
		d.refuseFor(err, problem.StoreUnavailable)
		return
	}
	c := engine.Claiming{Lease: l, Client: r.Context(), FollowsClient: rt.set.rules.ClientCancel, Size: len(r.RequestURI) + len(body.bytes), Fields: r.Header}
	var rec store.Record
	err := rt.claimAsRecorded(&c, &rec, now, r, body.bytes)
	d.waited = c.Waited
	switch {
	case errors.Is(err, ErrCorrupt):
		l.Observe(event.Event{Kind: event.Corrupt, Err: err})
		d.refuse(problem.AnswerUnreadable)
	case errors.Is(err, ErrShutdown):
		d.refuse(problem.ShuttingDown)
	case err != nil && c.FailsOpen(err):
		l.Observe(event.Event{Kind: event.FailOpen, Err: err})
		d.kind, d.body = failOpen, body.give()
	case err != nil:
		d.refuse(problem.StoreUnavailable)
	case rec.Mine && c.Unwanted() != nil:
		l.GiveBack()
		d.refuse(problem.TryLater)
		d.cause = c.Unwanted()
	case rec.Mine:
		d.kind, d.body = execute, body.give()
	default:
		rt.answerFrom(&rec, r, d)
		d.answered = true
	}
}

// claimAsRecorded claims, and claims again if the record is that of this request after all, as another
// function has it. The key may be bound anew meanwhile, to the same request as the first function has it.
func (rt *route) claimAsRecorded(c *engine.Claiming, rec *store.Record, now time.Time, r *http.Request, body []byte) error {
	defer c.Close(rec)
	err := c.Claim(rec, now)
	for other := false; err == nil && rec.State != 0 && rec.Fingerprint != c.Lease.Fingerprint(); other = true {
		if !rt.recognises(rec.Fingerprint, other, r, body) {
			break
		}
		c.Recognise(rec.Fingerprint)
		err = c.Claim(rec, time.Now())
	}
	return err
}

// answerFrom decides by the record that stands in the way of a run.
func (rt *route) answerFrom(rec *store.Record, r *http.Request, d *decision) {
	d.attempt, d.age, d.notes = rec.Attempt, rec.Age, rec.Notes
	d.lease.ReportHoldEnding(rec)
	code := rules.Recorded.Of(engine.Met(rec, d.lease.Fingerprint(), rt.versions.knows(rec.Fingerprint[0])))
	if code == "" {
		rt.answerRecorded(rec, r, d)
		return
	}
	d.refuse(code)
	switch code {
	case problem.KeyReused:
		rt.tellDifference(rec, d)
	case problem.OutcomeUnknown:
		d.lease.ReportFound(rec)
		d.goodFor = rec.TTL
	case problem.InFlight:
		d.goodFor = rt.set.goodFor(*rec)
	case problem.StoreUnavailable:
		d.lease.Observe(event.Event{Kind: event.Corrupt, Err: engine.UnknownVersion(rec.Fingerprint)})
	}
}

// tellDifference says in what a request differs from the one that its key is bound to, if anybody hears it.
func (rt *route) tellDifference(rec *store.Record, d *decision) {
	d.problem.Status = rt.set.mismatchStatus
	clientHears := !sameFunc(rt.set.errorWriter, writeProblem) // which does not tell
	if clientHears || rt.set.rules.Reporter.Heard() {
		d.differs = d.lease.Differs(rec)
	}
	if clientHears {
		d.problem.Differs = d.differs.Names()
	}
}

// answerRecorded replays the recorded answer, if it is whole and the caller may see it.
func (rt *route) answerRecorded(rec *store.Record, r *http.Request, d *decision) {
	l := d.lease
	d.fields = answer.NewSpace()
	a, err := rt.set.rules.Seals.OpenAnswer(rec.Answer, l.Name, rec.Fingerprint, d.fields)
	if err == nil && a.Kind != answer.KindKept && a.Kind != answer.KindNotKept {
		err = fmt.Errorf("%w: it is not a response", ErrCorrupt)
	}
	if err != nil {
		l.Observe(event.Event{Kind: event.Corrupt, Err: err})
		d.refuse(problem.AnswerUnreadable)
		if errors.Is(err, ErrUnreadableHere) { // another process has written it, and will serve it
			d.refuse(problem.StoreUnavailable)
		}
		return
	}
	if rt.set.authorizeReplay != nil {
		info := infoOf(rt.engine.Found(l.ID, *rec))
		info.Status = a.Status
		if err := rt.set.authorizeReplay(r, info); err != nil {
			d.refuseFor(err, problem.ReplayDenied)
			return
		}
	}
	d.goodFor = rec.TTL
	if a.Kind == answer.KindNotKept {
		d.refuse(problem.ResponseNotKept)
		d.problem.OriginalStatus, d.problem.OriginalLocation = a.Status, a.Location()
		return
	}
	d.kind, d.answer = replay, a
}

// recognises looks for the function that made a record's fingerprint, and reports whether that says the
// same of this request. So after a deployment that changed the function, retries of earlier requests are
// still compared with their own. other says that the guard's own function has not made the last claim.
func (rt *route) recognises(recorded Fingerprint, other bool, r *http.Request, body []byte) bool {
	same := func(f FingerprintFunc) bool {
		fp, err := reread.Try(f, r, body)
		if err == nil {
			rt.versions.add(fp[0])
		}
		return err == nil && fp == recorded
	}
	if slices.ContainsFunc(rt.set.formerFingerprints, same) || other && same(rt.set.fingerprint) {
		return true
	}
	f := fingerprintOf(recorded[0])
	// What the guard's own function says is known already.
	return f != nil && !sameFunc(f, rt.set.fingerprint) && same(f)
}
