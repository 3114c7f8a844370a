package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/policy"
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
	id  Key
	key string
	// body is that of a request whose handler will run.
	body requestBody
	// lease is the request's claim, once the store has been asked.
	lease *lease
	// answered says that the request is answered from a record, and has no use for its lease.
	answered bool
	// problem is what a refused request gets. cause is the error of the route's function
	// that it comes from, if it does.
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
	failOpen             // to the handler, unprotected because the store is away
	refuse               // with a problem
	replay               // the recorded answer
	execute              // the handler, under the claim
)

// A refusal is the problem that a request is refused with.
type refusal = problem.Document

func refused(code problem.Code) *refusal {
	p := problem.New(code)
	return &p
}

func (d *decision) refuse(code problem.Code) { d.kind, d.problem = refuse, problem.New(code) }

func (d *decision) refuseWith(p *refusal) { d.kind, d.problem = refuse, *p }

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
func (d *decision) leave(c *core) {
	d.fields.Free()
	if d.answered {
		c.freeLease(d.lease)
	}
	if d.admitted {
		c.work.leave()
	}
}

// decide finds out what a request gets.
func (g *Guard) decide(r *http.Request, d *decision) {
	body := requestBody{pool: &g.core.bodies}
	defer body.drop()
	id, ok := g.examine(r, &body, d)
	if !ok {
		return
	}
	if d.admitted = g.core.work.admit(); !d.admitted {
		d.refuse(problem.ShuttingDown)
		return
	}
	g.claim(r, &body, id, d)
}

// An identity is what a request is compared by: its fingerprint, and checksums of its parts.
type identity struct {
	fingerprint Fingerprint
	sums        digest.Checksums
}

// examine finds out what a request is: its key, whose key it is, and its identity. It reports
// false if it has decided what the request gets. The cheap refusals come first. The body is read
// before anything is claimed, so a body that drips in holds no claim.
func (g *Guard) examine(r *http.Request, body *requestBody, d *decision) (id identity, ok bool) {
	fromHeader := g.set.keyFunc == nil
	if fromHeader {
		values := r.Header[g.set.header]
		if g.isNested(r, values) {
			return id, false
		}
		switch present := g.readKey(values, d); {
		case d.kind == refuse:
			return id, false
		case !present && g.set.required:
			d.refuse(problem.KeyMissing)
			return id, false
		case !present:
			g.reportBypass(r)
			return id, false
		}
	}
	if isRPC(r.Header) && g.set.binding() != policy.Own {
		d.refuseFor(errRPC, problem.FingerprintFailed)
		return id, false
	}
	if g.readScope(r, d); d.kind == refuse {
		return id, false
	}
	if p := body.read(r, g.set.maxRequestBody); p != nil {
		d.refuseWith(p)
		return id, false
	}
	if !fromHeader {
		switch g.deriveKey(r, body.bytes, d); {
		case d.kind == refuse:
			return id, false
		case d.id.Value == "":
			g.reportBypass(r)
			d.kind, d.body = passRead, body.give()
			return id, false
		case g.passesNested(r, d.id):
			d.kind, d.body = passRead, body.give()
			return id, false
		}
	}
	id, err := g.set.identify(r, body.bytes)
	if err != nil {
		d.refuseFor(err, problem.FingerprintFailed)
		return id, false
	}
	g.core.versions.add(id.fingerprint[0])
	return id, true
}

// isNested reports whether a request meets this guard inside its own run, which holds its key
// already. It comes before every refusal: by what this guard demands besides, the run would
// be refused in the middle.
func (g *Guard) isNested(r *http.Request, values []string) bool {
	if len(values) == 0 {
		return false // and no look at the context, for requests without a key
	}
	if _, ok := FromContext(r.Context()); !ok {
		return false
	}
	value, _, err := keyFromHeader(values, false)
	if err != nil {
		return false
	}
	scope, err := g.core.scopeOf(r)
	return err == nil && g.passesNested(r, Key{Scope: scope, Value: value})
}

// passesNested reports whether a run that the request belongs to holds the key, and says so.
func (g *Guard) passesNested(r *http.Request, id Key) bool {
	op, ok := FromContext(r.Context())
	if !ok {
		return false
	}
	key := id.storeKey()
	if !g.core.holds(op, key) {
		return false
	}
	g.set.observe(r.Context(), event.Event{
		Kind: event.Nested, Record: key, Scope: id.Scope, OperationID: op.intent().id(), Method: r.Method, Route: g.set.routeOf(r),
	})
	return true
}

// reportBypass reports a request without a key, on a route that does not require one.
func (g *Guard) reportBypass(r *http.Request) {
	if g.set.heard() {
		g.set.observe(r.Context(), event.Event{Kind: event.Bypassed, Method: r.Method, Route: g.set.routeOf(r)})
	}
}

// readKey reads the key from the values of its header field. It reports whether there is one.
func (g *Guard) readKey(values []string, d *decision) (present bool) {
	key, present, err := keyFromHeader(values, g.set.strictKeys)
	switch {
	case err != nil:
		d.refuse(problem.KeyInvalid)
		d.problem.Detail = err.Error()
	case present:
		d.id.Value = key
		d.echo = values[0]
	}
	return present
}

func (g *Guard) readScope(r *http.Request, d *decision) {
	var err error
	d.id.Scope, err = g.core.scopeOf(r)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		d.refuseFor(err, problem.Unauthenticated)
	case err != nil:
		d.refuseFor(err, problem.ScopeUnresolved)
	}
}

var errLongKey = fmt.Errorf("idempotency: the key function returned a key of more than %d bytes", maxKeyLen)

// deriveKey asks the route's KeyFunc.
func (g *Guard) deriveKey(r *http.Request, body []byte, d *decision) {
	key, err := g.set.keyFunc(r, body)
	switch {
	case err != nil:
		d.refuseFor(err, problem.KeyInvalid)
	case len(key) > maxKeyLen:
		d.refuseFor(errLongKey, problem.KeyInvalid)
	case key == "" && g.set.required:
		d.refuse(problem.KeyMissing)
	default:
		d.id.Value = key
	}
	if d.problem.Code == problem.KeyInvalid {
		d.problem.Detail = "The request does not have the form that its idempotency key is taken from."
	}
}

// claim asks the store for the key, and decides by what it says.
func (g *Guard) claim(r *http.Request, body *requestBody, id identity, d *decision) {
	d.key = d.id.storeKey()
	now := time.Now()
	l := g.core.newLease()
	l.init(now, access{
		core: g.core, set: &g.set, id: d.id, key: d.key, client: r.Context(), method: r.Method, route: g.set.routeOf(r),
	}, id)
	d.lease = l
	if err := l.keepKey(); err != nil {
		d.refuseFor(err, problem.StoreUnavailable)
		return
	}
	c := claiming{guard: g, lease: l, client: r.Context(), begun: now, request: r, body: body.bytes}
	var rec store.Record
	err := c.claim(&rec)
	d.waited = c.waited
	switch {
	case errors.Is(err, ErrCorrupt):
		l.observe(event.Event{Kind: event.Corrupt, Err: err})
		d.refuse(problem.AnswerUnreadable)
	case err != nil && g.set.failOpen && !c.met:
		l.observe(event.Event{Kind: event.FailOpen, Err: err})
		d.kind, d.body = failOpen, body.give()
	case err != nil:
		d.refuse(problem.StoreUnavailable)
	case rec.Mine && c.isUnwanted():
		l.giveBack()
		d.refuse(problem.InFlight)
	case rec.Mine:
		d.kind, d.body = execute, body.give()
	default:
		g.answerFrom(&rec, r, d)
		d.answered = true
	}
}

// answerFrom decides by the record that stands in the way of a run.
func (g *Guard) answerFrom(rec *store.Record, r *http.Request, d *decision) {
	d.attempt, d.age, d.notes = rec.Attempt, rec.Age, rec.Notes
	g.core.reportHoldEnding(d.lease.key, rec, d.lease.observe)
	switch {
	case rec.State == 0: // the store could not tell
		d.refuse(problem.InFlight)
	case rec.Fingerprint != d.lease.claim.Fingerprint && !g.core.versions.knows(rec.Fingerprint[0]):
		d.lease.observe(event.Event{Kind: event.Corrupt, Err: unknownVersion(rec.Fingerprint)})
		d.refuse(problem.StoreUnavailable)
	case rec.Fingerprint != d.lease.claim.Fingerprint:
		d.refuse(problem.KeyReused)
		d.problem.Status = g.set.mismatchStatus
		if g.set.explain || g.set.heard() {
			d.differs = d.lease.differs(rec)
		}
		if g.set.explain {
			d.problem.Differs = d.differs.Names()
		}
	case rec.State == store.Completed:
		g.answerRecorded(rec, r, d)
	case rec.State == store.Held:
		d.lease.reportHeld(rec)
		d.refuse(problem.OutcomeUnknown)
		d.goodFor = rec.TTL
	default:
		d.refuse(problem.InFlight)
		d.goodFor = g.set.goodFor(*rec)
	}
}

// answerRecorded replays the recorded answer, if it is whole and the caller may see it.
func (g *Guard) answerRecorded(rec *store.Record, r *http.Request, d *decision) {
	l := d.lease
	d.fields = answer.NewSpace()
	a, err := g.set.unseal(rec.Answer, l.key, rec.Fingerprint, d.fields)
	if err == nil && a.Kind != answer.KindKept && a.Kind != answer.KindNotKept {
		err = fmt.Errorf("%w: it is not a response", ErrCorrupt)
	}
	if err != nil {
		l.observe(event.Event{Kind: event.Corrupt, Err: err})
		d.refuse(problem.AnswerUnreadable)
		if errors.Is(err, ErrUnreadableHere) { // another process has written it, and will serve it
			d.refuse(problem.StoreUnavailable)
		}
		return
	}
	if g.set.authorizeReplay != nil {
		info := g.set.recordInfo(l.id, *rec)
		info.Status = a.Status
		if err := g.set.authorizeReplay(r, info); err != nil {
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
