package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"example.com/idempotency/client/profile"
)

// This file makes the attempts of a request and decides when there are no more.

// A call is one logical request: all of its attempts carry the same key and bytes.
type call struct {
	t        *Transport
	server   *profile.Server
	declared bool // the program says that the server honours keys
	key      requestKey
	req      *http.Request // the transport's own
	limits   Limits
	budget   *budget
	start    time.Time

	attempts []Attempt
	counted  int  // attempts that did not find the request in flight
	doubt    bool // an attempt may have executed the request
	proven   bool // the route has shown that it honours keys
}

// A result is what an attempt has brought.
type result struct {
	resp    *http.Response
	answer  answer
	err     error
	verdict Verdict
	foreign bool // the answer leaves the doubt, and so would another one
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
	resp, err := c.t.throughBreaker(c.req)
	e := Event{Kind: EventAttempt, Err: err, Duration: time.Since(start)}
	if resp != nil {
		e.Status, e.Replayed = resp.StatusCode, c.server.IsReplay(resp)
		if c.key.withheld {
			resp.Request = c.answered(resp) // further on it is withheld too
		}
	}
	c.attempts = make([]Attempt, 1)
	c.observe(e)
	return resp, err
}

// run makes attempts until one of them ends the call.
func (c *call) run() (*http.Response, error) {
	c.start, c.doubt = time.Now(), c.key.resumed
	c.limits = c.t.set.limitsOf(c.req.Context())
	if c.key.since.IsZero() {
		c.key.since = c.start
	}
	if c.expired(c.start) {
		closeBody(c.req)
		return c.giveUp(ReasonTTL, &result{})
	}
	err := pin(c.req, c.t.set.maxBody)
	if gone := ended(c.req); gone != nil {
		closeBody(c.req)
		return c.giveUp(ReasonContext, &result{err: gone})
	}
	if err != nil {
		return c.giveUp(ReasonSettled, &result{err: err})
	}
	c.start = time.Now() // the body may have been long in coming
	if c.expired(c.start) {
		closeBody(c.req)
		return c.giveUp(ReasonTTL, &result{})
	}
	c.proven = c.t.routes.has(routeOf(c.req))
	c.budget = c.t.budgets.of(hostOf(c.req), &c.t.set)
	c.budget.deposit()
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
		if !sleep(c.req, time.Until(next)) {
			return c.giveUp(ReasonContext, &result{err: ended(c.req)})
		}
		if reason := c.late(time.Now()); reason != "" { // the process may have been suspended
			return c.giveUp(reason, &result{err: errAttemptTimeout})
		}
	}
}

func hostOf(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return r.URL.Host
}

// attempt sends the request.
func (c *call) attempt() *result {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(c.req.Context())
	limit := min(c.limits.AttemptTimeout, c.limits.Timeout-start.Sub(c.start))
	r := &result{cancel: cancel, timer: time.AfterFunc(limit, func() { cancel(errAttemptTimeout) })}
	ctx, seen := c.gather(ctx)
	c.send(c.req.WithContext(ctx), r)
	if !r.timer.Stop() && ended(c.req) == nil && (r.err != nil || !r.held) {
		r.err = errAttemptTimeout
	}
	c.judge(r, seen)
	c.learnExpiry(r, start)
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
		Replayed: r.answer.replayed, Duration: a.Duration, Expires: c.key.expires,
	})
	return r
}

// judge gives an attempt its verdict, in the light of the earlier ones.
func (c *call) judge(r *result, seen *evidence) {
	switch {
	case r.verdict == Settled: // nothing was sent, and will not be
	case r.err != nil:
		var executed bool
		r.verdict, executed = seen.judge(r.err)
		c.doubt = c.doubt || executed
	case c.key.value == "":
		r.verdict = r.answer.verdict()
		if r.answer.inFlight() || r.answer.unsupported() {
			r.verdict = Settled // without a key, there is no recorded answer to come
		}
	default:
		if r.answer.shows() && !c.proven {
			c.proven = true
			c.t.routes.learn(routeOf(c.req))
		}
		r.verdict = r.answer.verdict()
		c.doubt = c.doubt || seen.sentBefore()
		if c.doubt && r.verdict == Settled {
			switch r.answer.voiceOf() {
			case unsure:
				r.verdict = InDoubt
			case foreign:
				r.foreign = true
			}
		}
		r.foreign = r.foreign || r.verdict == InDoubt && r.answer.useless() && !r.answer.inFlight()
	}
	c.doubt = c.doubt || r.verdict == InDoubt || seen.sentBefore()
}

// send makes an attempt and receives as much of the answer as the verdict needs.
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
	packed := c.t.wantsGzip(req)
	if packed {
		req.Header = maps.Clone(req.Header) // that of the call is shown to the caller
		if req.Header == nil {
			req.Header = make(http.Header)
		}
		req.Header["Accept-Encoding"] = []string{"gzip"}
	}
	r.resp, r.err = c.t.throughBreaker(req) //nolint:bodyclose // drop closes it, or the caller
	if r.err == nil {
		r.held, r.err = hold(r.resp, c.t.set.maxBody)
	}
	if r.err == nil && packed {
		unpack(r.resp)
	}
	if r.err == nil {
		r.answer, r.err = readAnswer(r.resp, c.server)
		r.answer.echoes, r.answer.declared = c.server.Echoes(r.resp, c.key.value), c.declared
	}
}

// inFlight reports whether an attempt has found the request in flight.
func (c *call) inFlight(r *result) bool {
	return c.key.value != "" && r.err == nil && r.answer.inFlight()
}

// ends tells why an attempt is the last one whatever else is left. It returns the empty
// Reason if it is not.
func (c *call) ends(r *result) Reason {
	var breaker *refusedByBreaker
	switch {
	case r.err != nil && ended(c.req) != nil:
		return ReasonContext
	case errors.As(r.err, &breaker):
		return ReasonBreaker
	case r.verdict == Settled, r.foreign:
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
	if !c.inFlight(r) && !c.budget.withdraw(c.limits.Attempts) {
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
	ttl := c.t.set.ttl
	if c.server.TTL > 0 {
		ttl = c.server.TTL
	}
	age := func(since time.Time) time.Duration { return max(at.Sub(since), at.Round(0).Sub(since)) }
	return c.key.value != "" && (age(c.key.since) >= ttl || !c.key.expires.IsZero() && age(c.key.expires) >= 0)
}

// learnExpiry notes what an answer says about the life of the key. The server counts from later
// than the start of the attempt, so the time is never too late, and the last word counts.
func (c *call) learnExpiry(r *result, start time.Time) {
	if r.resp == nil || c.key.value == "" {
		return
	}
	if d, ok := c.server.GoodFor(r.resp); ok {
		c.key.expires = start.Add(d)
	}
}

// end ends the call with its last result, which is the answer unless it is an error, a
// refusal of the key, or an answer to something else.
func (c *call) end(reason Reason, r *result) (*http.Response, error) {
	if reason != ReasonSettled || r.err != nil || c.key.value != "" && (errorsOf(r.answer.meaning) != nil || r.foreign) {
		return c.giveUp(reason, r)
	}
	return c.deliver(r)
}

// giveUp ends a call that has no definite answer.
func (c *call) giveUp(reason Reason, r *result) (*http.Response, error) {
	event := Event{Kind: EventGaveUp, Reason: reason, Duration: time.Since(c.start)}
	refused := errorsOf(r.answer.meaning)
	if r.err == nil && r.resp != nil && (c.key.value == "" || !c.doubt && refused == nil) {
		event.Status = r.resp.StatusCode
		c.observe(event)
		return c.deliver(r)
	}
	err := r.err
	if r.resp != nil {
		if err == nil {
			err = statusError(r.resp.StatusCode)
			if location := r.resp.Header.Get("Location"); location != "" {
				err = fmt.Errorf("%w, Location %q", err, location)
			}
		}
		event.Status = r.resp.StatusCode
	}
	if r.cancel != nil {
		r.drop()
	}
	if c.key.value != "" {
		err = c.failure(reason, &r.answer, err)
	}
	event.Err = err
	c.observe(event)
	return nil, err
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

// deliver hands an answer to the caller.
func (c *call) deliver(r *result) (*http.Response, error) {
	r.resp.Request = c.answered(r.resp) // that of the attempt has a context of its own
	if r.held {
		r.cancel(nil)
	}
	conn, writable := r.resp.Body.(io.ReadWriteCloser)
	switch {
	case r.resp.Body == nil, r.held && !r.resp.Uncompressed:
		r.cancel(nil)
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
