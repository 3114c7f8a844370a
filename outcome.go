package idempotency

import (
	"net/http"
	"strconv"

	"example.com/idempotency/event"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// An Outcome says how a run ended, as far as its effects are concerned. It decides
// what the next request with the same key gets. It is the Outcome of package event.
type Outcome = event.Outcome

// The outcomes of a run.
const (
	// Final: the answer is definite, whether it reports success or refusal. It is
	// recorded and replayed until the TTL ends.
	Final = event.Final
	// NotExecuted: the run is known to have had no effect. The claim is released and
	// the next request runs as the next attempt. If no earlier attempt can have had an
	// effect either, the record ends after two leases, or 15 minutes under [Hold], and the
	// key is as good as new. See also [WithRebinding].
	NotExecuted = event.NotExecuted
	// Unknown: an effect may or may not have happened. The [Recovery] of the route
	// decides what the next request gets. The client is not shown a status of 4xx, 307 or 308,
	// which would tell it that nothing was done: it gets 503 no-answer, or 409 outcome-unknown
	// if the key is held. A 409 with Retry-After is shown unless the key is held. Any other
	// answer is shown. Under [WithTransaction] it becomes NotExecuted, with few exceptions.
	Unknown = event.Unknown
)

// DefaultOutcome is the rule used without [WithOutcome]. It judges by status. Below 500 is
// [Final], except 307, 308, 401, 407, 408, 421, 425 and 429: they say that the request was turned
// away before anything was done, and are [NotExecuted]. 500 and above is [Unknown], because a
// handler that fails may fail after its effect. So is 409 with the field Retry-After, which
// promises another answer.
//
// The refusal of another guard, which the handler passes on from a service behind it, is
// never Final. [problem.Header] gives it away. It is NotExecuted if its code says that the
// other guard had not looked at the key yet, or has undone all that its run did, and Unknown if
// another run may be involved.
//
// A guard without WithOutcome takes NotExecuted for Unknown if the run has begun a [Step], or
// has found one that an earlier attempt recorded: the step may have had an effect.
func DefaultOutcome(status int, h http.Header) Outcome {
	if code := problem.Code(h.Get(problem.Header)); code != "" {
		if code.NotRun() || code.Undone() {
			return NotExecuted
		}
		return Unknown
	}
	switch {
	case status >= http.StatusInternalServerError:
		return Unknown
	case status == http.StatusConflict && h.Get("Retry-After") != "":
		return Unknown
	case keepsMethod(status),
		status == http.StatusUnauthorized,
		status == http.StatusProxyAuthRequired,
		status == http.StatusRequestTimeout,
		status == http.StatusMisdirectedRequest,
		status == http.StatusTooEarly,
		status == http.StatusTooManyRequests:
		return NotExecuted
	default:
		return Final
	}
}

// A Recovery says what happens to a key whose run ended with an [Unknown] outcome: a
// server error, a panic, an answer cut short, or a process that died and let its
// lease lapse. One rule serves them all.
type Recovery uint8

const (
	// Rerun lets the next request run again, as attempt n+1 and with the recorded
	// steps of the earlier attempts. It is the default, and right where the handler
	// can tell from the attempt number, its steps or a downstream idempotency key
	// what has been done already.
	Rerun Recovery = iota
	// Hold lets nobody run again until the record is resolved or forgotten. It is the
	// choice for effects that cannot be repeated and cannot be looked up. A held record
	// has no end of its own unless [WithRetention] sets one.
	Hold
)

// String returns the policy's name, rerun or hold, and the number of any other value.
func (r Recovery) String() string {
	switch r {
	case Rerun:
		return "rerun"
	case Hold:
		return "hold"
	default:
		return "recovery(" + strconv.Itoa(int(r)) + ")"
	}
}

// WithMaxAttempts sets after how many attempts nobody runs any more: if attempt n or a later one
// ends with [Unknown] outcome, or its process dies, the key is held, as under [Hold]. So a request
// or a message that fails each time, or kills its process each time, stops to do so, and waits for
// somebody to look. All attempts of the record count. When the key has been resolved as
// [NotExecuted], the next attempt runs. The default, 0, sets no limit.
//
// Under [WithTransaction] too, the last attempt that fails holds the key, although it has done
// nothing.
func WithMaxAttempts(n int) Option {
	return optionFunc(func(s *settings) { s.maxAttempts = n })
}

// lastAttempt reports whether nobody runs after an attempt that leaves no answer.
func (s *settings) lastAttempt(attempt int) bool {
	return s.maxAttempts > 0 && attempt >= s.maxAttempts
}

// outcome judges a run whose task has returned. The program's own word comes first, then a
// step that may or may not have happened. A refusal by a run that was told to stop in the middle says
// nothing, whoever told it: its lease, its deadline or its client.
func (u *run) outcome(t task) Outcome {
	if set := Outcome(u.op.outcome.Load()); set != 0 {
		return u.happenedAlone(set)
	}
	u.refusesStopped = t.refused() && (u.lease.isLost() || u.ctx.toldToStop())
	if u.op.uncertain.Load() || u.refusesStopped {
		return Unknown
	}
	outcome := t.judge()
	if outcome == NotExecuted && u.op.effects.Load() > 0 && !u.guard.set.outcomeChosen {
		return Unknown // a step says otherwise than the status
	}
	return u.happenedAlone(outcome)
}

// happenedAlone corrects the outcome of a run that has committed its transaction by itself. What is
// committed has been executed, whatever the handler says of it.
func (u *run) happenedAlone(outcome Outcome) Outcome {
	if outcome == NotExecuted && u.op.joint.state == store.TxCommitted {
		return Unknown
	}
	return outcome
}

// refused reports whether the handler has answered with an error status.
func (h *handlerRun) refused() bool { return h.rec.Status() >= http.StatusBadRequest }

// judge asks the route's function about a complete answer. An answer that is shorter than
// declared, or silence because the handler was told to stop, is not an answer.
func (h *handlerRun) judge() Outcome {
	if h.rec.Short() || h.cutShort {
		return Unknown
	}
	var outcome Outcome
	if h.rec.Silent() {
		outcome = h.silence()
	}
	if outcome == 0 {
		outcome = h.guard.set.judge(h.rec.Status(), h.judgedHeader())
	}
	if h.rec.Late() {
		return Unknown
	}
	return outcome
}

// judgedHeader returns the header that the route's function judges: the one that was written, whatever the
// handler has done to it since. [DefaultOutcome] gets the two fields that it looks at.
func (h *handlerRun) judgedHeader() http.Header {
	if h.guard.set.outcomeChosen {
		return h.rec.Written()
	}
	code, retry := h.rec.Get(problem.Header), h.rec.Get("Retry-After")
	if code == "" && retry == "" {
		return nil
	}
	return http.Header{problem.Header: {code}, "Retry-After": {retry}}
}

// judge asks the route's function about an answer.
func (s *settings) judge(status int, h http.Header) Outcome {
	outcome := s.outcome(status, h)
	if outcome < Final || outcome > Unknown {
		return Unknown
	}
	return outcome
}

// refused reports whether the function has returned an error, or a value that stands for one.
func (j *job) refused() bool {
	v, ok := j.value.(Judged)
	return j.err != nil || ok && v.Refused()
}

// judge takes a value that is not Judged, and an error marked with Permanent, for definite.
func (j *job) judge() Outcome {
	if v, ok := j.value.(Judged); ok && j.err == nil {
		return v.Outcome()
	}
	if j.err == nil || IsPermanent(j.err) {
		return Final
	}
	return Unknown
}
