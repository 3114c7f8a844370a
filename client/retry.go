package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/problem"
)

// A call is one logical request: all of its attempts carry the same key and bytes.
type call struct {
	t     *Transport
	key   requestKey
	req   *http.Request // the transport's own
	start time.Time

	attempts []Attempt
	counted  int  // attempts that did not find the request in flight
	unknown  bool // an attempt may have executed the request
}

// A result is what an attempt has brought.
type result struct {
	resp    *http.Response
	problem *problem.Document
	err     error
	verdict Verdict
	held    bool // the body is in memory
	timer   *time.Timer
	cancel  context.CancelCauseFunc
}

// drop gives up the answer. A server that sends it slowly is not waited for.
func (r *result) drop() {
	const patience = time.Second
	r.timer.Reset(patience)
	discard(r.resp)
	r.timer.Stop()
	r.cancel(nil)
}

// repeatable reports whether the request may be sent more than once.
func (c *call) repeatable() bool { return c.key.value != "" || isIdempotent(method(c.req)) }

// once sends a request that must not be sent again.
func (c *call) once() (*http.Response, error) {
	start := time.Now()
	resp, err := c.t.throughBreaker(c.req)
	e := Event{Kind: EventAttempt, Err: err, Duration: time.Since(start)}
	if resp != nil {
		e.Status, e.Replayed = resp.StatusCode, Replayed(resp)
	}
	c.attempts = make([]Attempt, 1)
	c.observe(e)
	return resp, err
}

// run makes attempts until one of them ends the call.
func (c *call) run() (*http.Response, error) {
	c.start, c.unknown = time.Now(), c.key.resumed
	if c.key.since.IsZero() {
		c.key.since = c.start
	}
	if c.expired(c.start) {
		closeBody(c.req)
		return c.giveUp(ReasonTTL, &result{})
	}
	err := pin(c.req, c.t.set.maxBody)
	if gone := context.Cause(c.req.Context()); gone != nil {
		closeBody(c.req)
		return c.giveUp(ReasonContext, &result{err: gone})
	}
	if err != nil {
		return c.giveUp(ReasonFinal, &result{err: err})
	}
	c.start = time.Now() // the body may have been long in coming
	if c.expired(c.start) {
		closeBody(c.req)
		return c.giveUp(ReasonTTL, &result{})
	}
	c.t.budget.deposit()
	for {
		r := c.attempt()
		if reason := c.ends(r); reason != "" {
			return c.end(reason, r)
		}
		wait := c.t.set.pause(len(c.attempts), r.resp)
		next := time.Now().Add(wait)
		if reason := c.stops(next, r); reason != "" {
			return c.giveUp(reason, r)
		}
		r.drop()
		c.observe(Event{Kind: EventRetry, Wait: wait})
		if !sleep(c.req.Context(), time.Until(next)) {
			return c.giveUp(ReasonContext, &result{err: context.Cause(c.req.Context())})
		}
		if reason := c.late(time.Now()); reason != "" { // the process may have been suspended
			return c.giveUp(reason, &result{err: errAttemptTimeout})
		}
	}
}

// attempt sends the request.
func (c *call) attempt() *result {
	t, start := c.t, time.Now()
	ctx, cancel := context.WithCancelCause(c.req.Context())
	limit := min(t.set.attemptTimeout, t.set.deadline-start.Sub(c.start))
	r := &result{cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(errAttemptTimeout) })}
	ctx, seen := t.gather(ctx)
	c.send(c.req.WithContext(ctx), r)
	if !r.timer.Stop() && c.req.Context().Err() == nil && (r.err != nil || !r.held) {
		r.err = errAttemptTimeout
	}
	switch {
	case r.verdict == Final: // nothing was sent, and will not be
	case r.err != nil:
		var executed bool
		r.verdict, executed = seen.judge(r.err)
		c.unknown = c.unknown || executed
	case c.key.value == "" && inFlight(r.resp, r.problem):
		r.verdict = Final // without a key, a conflict is a conflict
	default:
		r.verdict = classifyAnswer(r.resp, r.problem)
	}
	c.unknown = c.unknown || r.verdict == Unknown || seen.sentBefore()
	a := Attempt{Start: start, Duration: time.Since(start), Err: r.err, Verdict: r.verdict}
	if r.resp != nil {
		a.Status = r.resp.StatusCode
	}
	c.attempts = append(c.attempts, a)
	if !c.inFlight(r) {
		c.counted++
	}
	c.observe(Event{
		Kind: EventAttempt, Status: a.Status, Err: a.Err, Verdict: a.Verdict,
		Replayed: Replayed(r.resp), Duration: a.Duration,
	})
	return r
}

// send makes an attempt and receives what is to be received before it is judged.
func (c *call) send(req *http.Request, r *result) {
	if len(c.attempts) > 0 && req.GetBody != nil {
		if req.Body, r.err = req.GetBody(); r.err != nil {
			r.verdict = Final
			return
		}
	}
	r.resp, r.err = c.t.throughBreaker(req) //nolint:bodyclose // drop closes it, or the caller
	if r.err == nil {
		r.held, r.err = hold(r.resp, c.t.set.maxBody)
	}
	if r.err == nil {
		r.problem, r.err = readProblem(r.resp)
	}
}

// inFlight reports whether an attempt has found the request in flight.
func (c *call) inFlight(r *result) bool {
	return c.key.value != "" && r.err == nil && inFlight(r.resp, r.problem)
}

// ends tells why an attempt is the last one whatever else is left: nothing, if it is not.
func (c *call) ends(r *result) string {
	var breaker *refusedByBreaker
	switch {
	case r.err != nil && c.req.Context().Err() != nil:
		return ReasonContext
	case errors.As(r.err, &breaker):
		return ReasonBreaker
	case r.verdict == Final:
		return ReasonFinal
	default:
		return ""
	}
}

// stops tells why no further attempt can be made at a time to come.
func (c *call) stops(next time.Time, r *result) string {
	if c.counted >= c.t.set.attempts {
		return ReasonAttempts
	}
	if reason := c.late(next); reason != "" {
		return reason
	}
	if !c.inFlight(r) && !c.t.budget.withdraw() {
		return ReasonBudget
	}
	return ""
}

// late tells why a time is too late for an attempt.
func (c *call) late(at time.Time) string {
	deadline, limited := c.req.Context().Deadline()
	switch {
	case at.Sub(c.start) >= c.t.set.deadline, limited && !at.Before(deadline):
		return ReasonDeadline
	case c.expired(at):
		return ReasonTTL
	default:
		return ""
	}
}

// expired reports whether the server may have forgotten the key by then. The clock that
// never steps stands still while the machine sleeps, and the other one may be set back:
// the later of the two counts.
func (c *call) expired(at time.Time) bool {
	age := max(at.Sub(c.key.since), at.Round(0).Sub(c.key.since))
	return c.key.value != "" && age >= c.t.set.ttl
}

// end ends the call with its last result, which is the answer unless it is an error, a
// refusal of the key, or an answer to something else.
func (c *call) end(reason string, r *result) (*http.Response, error) {
	switch {
	case reason != ReasonFinal || r.err != nil,
		c.key.value != "" && refusal(r.problem) != nil,
		c.unknown && c.key.value != "" && c.saysNothing(r.resp, r.problem):
		return c.giveUp(reason, r)
	default:
		return c.deliver(r)
	}
}

// giveUp ends a call that has no definite answer.
func (c *call) giveUp(reason string, r *result) (*http.Response, error) {
	event := Event{Kind: EventGaveUp, Reason: reason, Duration: time.Since(c.start)}
	refused := refusal(r.problem)
	if r.err == nil && r.resp != nil && (c.key.value == "" || !c.unknown && refused == nil) {
		event.Status = r.resp.StatusCode
		c.observe(event)
		return c.deliver(r)
	}
	err := r.err
	if r.resp != nil {
		if err == nil {
			err = statusError(r.resp.StatusCode)
		}
		event.Status = r.resp.StatusCode
	}
	if r.cancel != nil {
		r.drop()
	}
	if c.key.value != "" {
		err = c.failure(reason, r.problem, err)
	}
	event.Err = err
	c.observe(event)
	return nil, err
}

// failure makes the error of a request with a key.
func (c *call) failure(reason string, p *problem.Document, err error) *Error {
	e := &Error{Key: c.key.value, Reason: reason, Attempts: slices.Clone(c.attempts), Problem: p, Err: err, is: refusal(p)}
	// A key that was used with other bytes may have been so by an earlier attempt.
	if known := slices.Contains(e.is, ErrAnswerLost) || slices.Contains(e.is, ErrOutcomeUnknown); c.unknown && !known {
		e.is = append(e.is, ErrOutcomeUnknown)
	}
	if reason == ReasonTTL {
		e.is = append(e.is, ErrKeyExpired)
	}
	return e
}

// deliver hands an answer to the caller.
func (c *call) deliver(r *result) (*http.Response, error) {
	r.resp.Request = c.answered(r.resp) // that of the attempt has a context of its own
	switch {
	case r.held:
		r.cancel(nil)
	case r.resp.Body == nil || r.resp.StatusCode == http.StatusSwitchingProtocols:
		// The connection belongs to the caller from now on.
	default:
		r.resp.Body = &streamedBody{ReadCloser: r.resp.Body, cancel: r.cancel, broken: c.broken}
	}
	return r.resp, nil
}

// broken returns the error for the body of an answer that breaks off while the caller
// reads it. The request was executed, or is being executed, but with which answer?
func (c *call) broken(err error) error {
	if c.key.value == "" {
		return err
	}
	c.unknown = true
	return c.failure(ReasonFinal, nil, err)
}
