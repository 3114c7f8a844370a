package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"example.com/idempotency/client/internal/truncate"
	"example.com/idempotency/client/profile"
)

// This file makes the attempts of a request, decides when there are no more, and ends the call.

// A call is one logical request: all of its attempts carry the same key and bytes.
type call struct {
	t        *Transport
	server   *profile.Server
	declared bool // the program says that the server honours keys
	key      requestKey
	req      *http.Request // the transport's own
	limits   Limits
	ttl      time.Duration // of the key
	budget   *budget
	start    time.Time

	attempts []Attempt
	counted  int  // attempts that have not found the work going on
	doubt    bool // an attempt may have executed the request
	proven   bool // the route has shown that it honours keys
}

// repeatable reports whether the request may be sent more than once. Without a key, its
// body is not held in memory: it is sent as without a Transport.
func (c *call) repeatable() bool {
	return c.key.value != "" || isIdempotent(method(c.req)) && (noBody(c.req) || c.req.GetBody != nil)
}

// safeInDoubt reports whether another attempt has no effect of its own if an earlier one was
// executed.
func (c *call) safeInDoubt() bool {
	return c.key.value == "" || isIdempotent(method(c.req)) || c.declared || c.proven
}

// once sends a request that must not be sent again.
func (c *call) once() (*http.Response, error) {
	start := time.Now()
	resp, err := roundTrip(c.req, c.t.base, c.t.set.breaker)
	e := Event{Kind: EventAttempt, Err: err, Duration: time.Since(start)}
	if resp != nil {
		e.Status, e.Replayed = resp.StatusCode, c.server.IsReplay(resp)
		if c.key.withheld {
			resp.Request = c.key.answered(c.req, resp, c.doubt) // further on it is withheld too
		}
	}
	c.attempts = make([]Attempt, 1)
	c.observe(e)
	return resp, err
}

// prepare makes the request one that can be sent again. It tells why it is not sent at all.
func (c *call) prepare() (Reason, error) {
	if c.key.isTooOld(time.Now(), c.ttl) {
		return ReasonTTL, nil
	}
	err := pin(c.req, c.t.set.maxBody)
	if gone := ended(c.req); gone != nil {
		return ReasonContext, gone
	}
	if err != nil {
		return ReasonSettled, err
	}
	c.start = time.Now() // the body may have been long in coming
	if c.key.isTooOld(c.start, c.ttl) {
		return ReasonTTL, nil
	}
	return "", nil
}

// run makes attempts until one of them ends the call.
func (c *call) run() (*http.Response, error) {
	c.start, c.doubt = time.Now(), c.key.resumed
	c.limits = c.t.set.limits.in(c.req.Context())
	if c.key.since.IsZero() {
		c.key.since = c.start
	}
	if reason, err := c.prepare(); reason != "" {
		closeBody(c.req)
		return c.giveUp(reason, &result{err: err})
	}
	c.proven = c.t.routes.has(routeOf(c.req))
	c.budget = c.t.budgets.of(hostOf(c.req))
	c.budget.deposit()
	for {
		r := c.attempt()
		if reason := c.ends(r); reason != "" {
			return c.end(reason, r)
		}
		wait := c.t.set.backoff.pause(len(c.attempts), r.resp)
		next := time.Now().Add(wait)
		if reason := c.stops(next, r); reason != "" {
			return c.giveUp(reason, r)
		}
		r.drop()
		c.observe(Event{Kind: EventRetry, Wait: wait})
		if !sleep(c.req, time.Until(next)) {
			return c.giveUp(ReasonContext, &result{err: ended(c.req)})
		}
		if reason := c.late(time.Now()); reason != "" { // the process may have been suspended
			return c.giveUp(reason, &result{err: errAttemptTimeout})
		}
	}
}

// attempt sends the request.
func (c *call) attempt() *result {
	start := time.Now()
	ctx, seen := gather(c.req.Context(), c.t.base, c.key.field)
	r, ctx := newResult(ctx, min(c.limits.AttemptTimeout, c.limits.Timeout-start.Sub(c.start)))
	if c.doubt && c.key.value != "" {
		key := c.key // which the answer changes
		seen.tooLate = func() bool { return key.isTooOld(time.Now(), c.ttl) }
		seen.giveUp = func() { r.cancel(errSentTooLate) }
		defer seen.watch(key.life(start, c.ttl)).Stop()
	}
	c.send(c.req.WithContext(ctx), r)
	if !r.timer.Stop() && ended(c.req) == nil && (r.err != nil || !r.held) {
		r.err = errAttemptTimeout
	}
	if r.err != nil && errors.Is(context.Cause(ctx), errSentTooLate) {
		r.err = errSentTooLate
	}
	c.judge(r, seen)
	if r.resp != nil {
		c.key.learn(c.server, r.resp, start)
	}
	a := Attempt{Start: start, Duration: time.Since(start), Err: r.err, Verdict: r.verdict, Status: r.status()}
	c.attempts = append(c.attempts, a)
	if r.ruling != wait {
		c.counted++
	}
	c.observe(Event{
		Kind: EventAttempt, Status: a.Status, Err: a.Err, Verdict: a.Verdict,
		Replayed: r.answer.replayed, Duration: a.Duration, Expires: c.key.expires,
	})
	return r
}

// send makes an attempt, the first one with the body that the request has.
func (c *call) send(req *http.Request, r *result) {
	if len(c.attempts) > 0 && req.GetBody != nil {
		if req.Body, r.err = req.GetBody(); r.err != nil {
			r.verdict = Settled
			return
		}
	}
	if !c.safeInDoubt() {
		unrepeatable(req, c.t.base)
	}
	c.t.exchange(req, c.server, r)
	if r.err == nil {
		r.answer.echoes, r.answer.declared = c.server.Echoes(r.resp, c.key.value), c.declared
		r.answer.nowhere = leadsNowhere(req, r.resp)
	}
}

// judge gives an attempt its verdict, in the light of the earlier ones.
func (c *call) judge(r *result, seen *evidence) {
	switch {
	case r.verdict == Settled: // nothing was sent, and will not be
	case r.err != nil:
		var executed bool
		r.verdict, executed = seen.judge(r.err)
		c.doubt = c.doubt || executed
	default:
		keyed := c.key.value != ""
		if keyed && !c.proven && r.answer.shows() {
			c.proven = true
			c.t.routes.learn(routeOf(c.req))
		}
		c.doubt = c.doubt || seen.sentBefore()
		r.ruling = rule(&r.answer, keyed, keyed && c.doubt)
		r.verdict = r.ruling.verdict()
	}
	c.doubt = c.doubt || r.verdict == InDoubt || seen.sentBefore()
}

// ends tells why an attempt is the last one whatever else is left. It returns the empty
// Reason if it is not.
func (c *call) ends(r *result) Reason {
	switch {
	case r.err != nil && ended(c.req) != nil:
		return ReasonContext
	case errors.Is(r.err, errSentTooLate):
		return ReasonTTL
	case is[*refusedByBreaker](r.err):
		return ReasonBreaker
	case r.verdict == Settled, r.ruling == unknown:
		return ReasonSettled
	default:
		return ""
	}
}

// stops tells why no further attempt can be made at a time to come.
func (c *call) stops(next time.Time, r *result) Reason {
	if c.doubt && !c.safeInDoubt() {
		return ReasonUnproven
	}
	if c.counted >= c.limits.Attempts {
		return ReasonAttempts
	}
	if reason := c.late(next); reason != "" {
		return reason
	}
	inFlight := r.ruling == wait && r.answer.inFlight() // which costs the server little to say
	if !inFlight && !c.budget.withdraw(c.limits.Attempts) {
		return ReasonBudget
	}
	return ""
}

// late tells why a time is too late for an attempt.
func (c *call) late(at time.Time) Reason {
	deadline, limited := c.req.Context().Deadline()
	switch {
	case at.Sub(c.start) >= c.limits.Timeout, limited && !at.Before(deadline):
		return ReasonTimeout
	case c.key.isTooOld(at, c.ttl):
		return ReasonTTL
	default:
		return ""
	}
}

// end ends the call with its last result, which is the answer unless it is an error, a
// refusal of the key, or an answer to something else.
func (c *call) end(reason Reason, r *result) (*http.Response, error) {
	if reason != ReasonSettled || r.err != nil || c.key.value != "" && (errorsOf(r.answer.meaning) != nil || r.ruling == unknown) {
		return c.giveUp(reason, r)
	}
	return c.deliver(r)
}

// giveUp ends a call that has no definite answer.
func (c *call) giveUp(reason Reason, r *result) (*http.Response, error) {
	event := Event{Kind: EventGaveUp, Reason: reason, Status: r.status(), Err: r.err, Duration: time.Since(c.start)}
	answered := r.err == nil && r.resp != nil
	if answered && (c.key.value == "" || !c.doubt && errorsOf(r.answer.meaning) == nil) {
		c.observe(event)
		c.key.unserved = c.key.value != ""
		return c.deliver(r)
	}
	if answered {
		event.Err = statusError(r.resp.StatusCode)
		if location := r.resp.Header.Get(locationField); location != "" {
			event.Err = fmt.Errorf("%w, Location %s", event.Err, truncate.Text(strconv.Quote(location)))
		}
	}
	if r.cancel != nil {
		r.drop()
	}
	if c.key.value != "" {
		event.Err = c.failure(reason, &r.answer, event.Err)
	}
	c.observe(event)
	return nil, event.Err
}

// failure makes the error of a request with a key.
func (c *call) failure(reason Reason, a *answer, err error) *Error {
	e := &Error{
		Key: c.key.value, Since: c.key.since, Expires: c.key.expires, Reason: reason, Attempts: slices.Clone(c.attempts),
		Problem: a.problem, Answer: a.document, Err: err, is: errorsOf(a.meaning),
	}
	// A key that was used with other bytes may have been so by an earlier attempt.
	known := slices.Contains(e.is, ErrAnswerLost) || slices.Contains(e.is, ErrOutcomeUnknown)
	if c.doubt && !known {
		e.is = append(e.is, ErrOutcomeUnknown)
	}
	if reason == ReasonTTL {
		e.is = append(e.is, ErrKeyExpired)
	}
	return e
}

// redirectFailed makes the error of the request that http.Client sends without the key that a redirect
// has answered. Whoever sent that request learns of no other end.
func (c *call) redirectFailed(err error) *Error {
	k := c.key.behind
	return &Error{
		Key: k.value, Since: k.since, Expires: k.expires, Reason: ReasonSettled, Attempts: slices.Clone(c.attempts),
		Err: fmt.Errorf("after a redirect: %w", err), is: []error{ErrOutcomeUnknown},
	}
}

// observe tells the observers of an event.
func (c *call) observe(e Event) {
	o := &c.t.set.observers
	if !o.wants(&e) {
		return
	}
	if c.key.value != "" {
		e.KeyHash = keyHash(c.key.value)
	}
	e.Method, e.Host, e.Attempt = method(c.req), hostOf(c.req), len(c.attempts)
	o.tell(c.req.Context(), &e)
}

// deliver hands an answer to the caller.
func (c *call) deliver(r *result) (*http.Response, error) {
	r.resp.Request = c.key.answered(c.req, r.resp, c.doubt) // that of the attempt has a context of its own
	if r.answer.nowhere && c.key.value != "" {
		r.resp.Header["location"] = r.resp.Header[locationField]
		delete(r.resp.Header, locationField)
	}
	if r.held || r.resp.Body == nil {
		r.cancel(nil)
	}
	conn, writable := r.resp.Body.(io.ReadWriteCloser)
	switch {
	case r.resp.Body == nil, r.held && !r.resp.Uncompressed:
	case writable && r.resp.StatusCode == http.StatusSwitchingProtocols:
		r.resp.Body = &conversation{ReadWriteCloser: conn, cancel: r.cancel}
	default: // also a body in memory whose packing may be damaged
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
	c.doubt = true
	return c.failure(ReasonSettled, &answer{}, err)
}
