package idempotency

import (
	"net/http"
	"strconv"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/problem"
)

// An Outcome says how a run ended, as far as its effects are concerned. It decides
// what the next request with the same key gets. It is the Outcome of package event.
type Outcome = event.Outcome

// The outcomes of a run, and Resume.
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
	// if the key is held. A 409 with Retry-After is shown unless the key is held, and so are 401, 407,
	// 421, 425 and 429 if only a step speaks against them, with the field [problem.Header]. Any other
	// answer is shown. Under [WithTransaction] it becomes NotExecuted, with few exceptions.
	Unknown = event.Unknown
	// Resume: a held key is let go, and the next request goes on as the next attempt: it finds the
	// steps that are recorded, and repeats the one in doubt. Only a [Resolution] says so. A run that
	// says it of itself has said nothing.
	Resume = event.Resume
)

// DefaultOutcome is the rule used without [WithOutcome]. It judges by status. Below 500 is
// [Final], except 307, 308, 401, 407, 421, 425 and 429: they say that the request was turned
// away before anything was done, and are [NotExecuted]. 500 and above is [Unknown], because a
// handler that fails may fail after its effect. So is 409 with the field Retry-After, which
// promises another answer, and so are 408 and 499: the guard has read the body before the run, so they only
// say that somebody has given up waiting, and the work may go on.
//
// The refusal of another guard, which the handler passes on from a service behind it, is
// never Final. [problem.Header] gives it away, with an error status, or with 307 or 308 and a code of package
// problem. It is NotExecuted if it has an error status and its code says that the other guard had not looked at the key
// yet, or has undone all that its run did. Otherwise it is Unknown: another run may be involved.
//
// What a handler passes on is taken for its own word: one that has had an effect besides must not answer with
// the refusal of a service behind it, nor with one of the statuses above, or says so with [Operation.SetOutcome].
//
// A guard without WithOutcome takes NotExecuted for Unknown if the run has begun a [Step], or
// has found one that an earlier attempt recorded: the step may have had an effect.
func DefaultOutcome(status int, h http.Header) Outcome {
	if code := rules.RefusalBehind(status, h.Get(problem.Header)); code != "" {
		if status >= http.StatusBadRequest && (code.NotRun() || code.Undone()) {
			return NotExecuted
		}
		return Unknown
	}
	switch {
	case status >= http.StatusInternalServerError:
		return Unknown
	case status == http.StatusConflict && h.Get("Retry-After") != "", response.GivesUp(status):
		return Unknown
	case response.KeepsMethod(status), response.TurnsAway(status):
		return NotExecuted
	default:
		return Final
	}
}

// A Recovery says what happens to a key whose run ended with an [Unknown] outcome: a
// server error, a panic, an answer cut short, or a process that died and let its
// lease lapse. One rule serves them all. It is [Rerun], [Hold], or what [HoldAfter] returns.
type Recovery int

const (
	// Rerun lets the next request run again, as attempt n+1 and with the recorded
	// steps of the earlier attempts. It is the default, and right where the handler
	// can tell from the attempt number, its steps or a downstream idempotency key
	// what has been done already.
	Rerun Recovery = 0
	// Hold lets nobody run again until the record is resolved or forgotten. It is the
	// choice for effects that cannot be repeated and cannot be looked up. A held record
	// has no end of its own unless [WithRetention] sets one.
	Hold Recovery = -1
)

// HoldAfter returns the [Recovery] that is [Rerun] for the attempts before n. If attempt n or a later one
// ends with [Unknown] outcome, the key is held, as under [Hold]. If its process dies instead, the next
// request holds the key in place of a run, and is counted as an attempt; until one comes, nobody hears of
// it, and the record ends with its retention. Use Hold where that is not enough, or HoldAfter(1), which is
// the same. So a request or a message that fails each time, or kills its process each time, stops to do
// so, and waits for somebody to look. All attempts of the record count, also one that was given back because
// its time was over before its run began. When the key has been resolved as [Resume] or [NotExecuted],
// the next attempt runs. n must be at least 1; [WithRecovery] makes an error of less.
//
// Under [WithTransaction] too, the last attempt that fails holds the key, although it has done nothing. A claim
// is then a commit of its own, also in a store whose claims can be part of the run's transaction.
func HoldAfter(n int) Recovery {
	if n < 1 {
		return Hold - 1 // none of them
	}
	return Recovery(n)
}

// String returns the policy's name: rerun, hold or, for [HoldAfter] with 3, hold-after-3.
func (r Recovery) String() string {
	switch {
	case r == Rerun:
		return "rerun"
	case r == Hold:
		return "hold"
	case r > Rerun:
		return "hold-after-" + strconv.Itoa(int(r))
	default:
		return "recovery(" + strconv.Itoa(int(r)) + ")"
	}
}
