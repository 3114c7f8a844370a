package idempotency

import (
	"errors"
	"net/http"
	"time"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// A run is one execution of a handler. All its parts are one allocation, and none is
// reused: a handler may keep its request, writer or operation for longer than the run
// lasts. The lease stands apart, because it may have to outlive all that: a run that
// waits to be recorded keeps its answer, and not its request.
type run struct {
	guard *Guard
	op    Operation
	lease *lease
	ctx   runContext
	rec   response.Recorder
	req   http.Request
	body  bodyReader

	// Set by judge, when the handler has returned.
	returned bool
	cutShort bool // it said nothing, because it was told to stop
	answer   response.Answer
	verdict  verdict
}

// serve runs the handler under the claim, settles the outcome and answers.
func (u *run) serve(w http.ResponseWriter, r *http.Request, next http.Handler, body []byte) {
	start := time.Now()
	u.ctx.init(r.Context(), &u.op, u.guard.set.clientCancel)
	defer u.ctx.end()
	u.req = *r.WithContext(&u.ctx)
	setBody(&u.req, &u.body, body)
	u.rec.Init(w, r.Method, u.guard.set.header, u.guard.set.maxResponseLen)
	u.lease.keep(&u.ctx)

	// A panic and runtime.Goexit pass through here on their way out. They are not
	// recovered: net/http, and the log, see the panic where it happened.
	defer u.finish(w, r, start)
	next.ServeHTTP(&u.rec, &u.req)
	u.judge()
}

// judge decides what the answer of a handler that has returned means. The functions of
// the route that it calls are part of the run: if one panics, the handler has.
func (u *run) judge() {
	u.op.endSteps()
	silent := u.rec.Silent()
	u.rec.Close(true)
	u.answer = u.rec.Answer()
	u.cutShort = silent && u.ctx.Err() != nil
	u.verdict = u.judgement(u.outcome())
	if u.verdict.outcome == Final {
		// It has happened. If its sealer panics, nobody may run again.
		u.op.uncertain.Store(true)
		u.verdict = u.final(&u.answer)
	}
	u.returned = true
}

func (u *run) judgement(outcome Outcome) verdict {
	return verdict{outcome: outcome, hold: u.guard.set.recovery == Hold || u.op.uncertain.Load()}
}

// finish settles the run, then lets the answer out.
func (u *run) finish(w http.ResponseWriter, r *http.Request, start time.Time) {
	defer u.rec.DropBuffer()
	removeForm(&u.req, r)
	if !u.returned {
		u.op.endSteps()
		u.rec.Close(false)
		u.verdict = u.judgement(Unknown) // a panic or Goexit
	}
	duration := time.Since(start)
	rec, err := u.lease.settle(u.verdict)
	if len(u.guard.set.observers) > 0 {
		u.lease.observe(Event{
			Kind: EventRun, Method: r.Method, Pattern: r.Pattern,
			Outcome: u.verdict.outcome, Status: u.rec.Status(), Duration: duration,
		})
	}
	switch {
	case !u.returned:
		// The connection is about to be cut by net/http; there is no answer.
	case errors.Is(err, errSuperseded) && !u.rec.Sent():
		// Another run's answer counts. Ours would be seen by nobody else.
		u.guard.serveRecord(w, r, u.lease, rec)
	case u.cutShort && u.verdict.outcome != Final:
		// The empty 200 that net/http makes of silence would be a lie.
		code := problem.InFlight
		if u.verdict.lasting() {
			code = problem.OutcomeUnknown
		}
		u.guard.reject(w, r, u.lease.key, problem.New(code))
	default:
		u.rec.Respond(&u.answer)
	}
}

// final is the verdict for a definite answer: how it is stored, or, if it cannot be
// sealed and so cannot be stored, that nobody may run again.
func (u *run) final(a *response.Answer) verdict {
	if u.rec.Short() {
		// By the handler's own word the run counts, but half an answer must not be
		// replayed as a whole one.
		short := u.rec.NotKept()
		a = &short
	}
	stored, err := u.seal(a)
	if err != nil {
		u.lease.observe(Event{Kind: EventRecordingLost, Err: err})
		return verdict{outcome: Unknown, hold: true}
	}
	return verdict{outcome: Final, answer: stored, run: u}
}

// notKept is what is stored in place of the answer where there is no room for it: that it
// ran is the most important thing, and takes a few bytes. Nil if it cannot be sealed.
func (u *run) notKept() []byte {
	a := u.rec.NotKept()
	stored, err := u.seal(&a)
	if err != nil {
		return nil
	}
	return stored
}

func (u *run) seal(a *response.Answer) ([]byte, error) {
	return u.guard.set.seal(a, u.lease.key, u.lease.claim.Fingerprint)
}

// outcome judges a run that has returned.
func (u *run) outcome() Outcome {
	if set := Outcome(u.op.outcome.Load()); set != 0 {
		return set
	}
	if u.op.uncertain.Load() {
		return Unknown
	}
	// An answer that is not whole, or none because the run was cut short, is not an
	// answer. Nor is a refusal by a run that was told to stop in the middle.
	if u.rec.Short() || u.cutShort {
		return Unknown
	}
	if u.rec.Status() >= http.StatusBadRequest && u.lease.isLost() {
		return Unknown
	}
	outcome := u.guard.set.outcome(u.rec.Status(), u.rec.Header())
	if outcome < Final || outcome > Unknown {
		return Unknown
	}
	return outcome
}
