package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"example.com/idempotency/problem"
)

// Errors of a [Transport]. Those that are about a request with a key come inside of an
// [*Error].
var (
	// ErrOutcomeUnknown says that the request may or may not have been executed. Only
	// another request with the same key and the same bytes finds out; one with a new key
	// may do it again.
	ErrOutcomeUnknown = errors.New("client: outcome unknown")

	// ErrHeld says that the server does not know the outcome either, and will not run the
	// request again until somebody has settled it. It comes with ErrOutcomeUnknown.
	ErrHeld = errors.New("client: outcome unknown to the server and held there")

	// ErrAnswerLost says that the request was executed, and that its answer cannot be had
	// any more. The [problem.Document] may tell its status and location.
	ErrAnswerLost = errors.New("client: executed, but the answer was not kept")

	// ErrKeyReused says that the key was used before with another request. This one was
	// not executed. It comes with ErrOutcomeUnknown if the other may be an earlier attempt:
	// one of a program that has made other bytes of the same [Entry], or of a GetBody that
	// does.
	ErrKeyReused = errors.New("client: key was used for another request")

	// ErrKeyExpired says that a key is older than the server remembers: sent again it
	// would be a new one. See [WithTTL]. It comes with ErrOutcomeUnknown if the key may
	// have been sent before.
	ErrKeyExpired = errors.New("client: key is older than the server remembers")

	// ErrKeyInvalid says that the key that the caller has chosen has no form that can be
	// sent. Nothing was sent.
	ErrKeyInvalid = errors.New("client: invalid key")

	// ErrBodyTooLarge says that the body of a request would have to be held in memory to
	// be sent again, and is over the limit; see [WithMaxBody]. Nothing was sent.
	ErrBodyTooLarge = errors.New("client: request body too large to be sent again")
)

// Errors of attempts.
var (
	errAttemptTimeout = errors.New("no answer in time")
	errNoResult       = errors.New("attempt ended without a result")
)

// An Attempt is what is known of one try to send a request and get its answer. It is not
// an attempt as the server counts them: those are runs, and a try may cause none.
type Attempt struct {
	// Start is when it began, and Duration how long it took.
	Start    time.Time
	Duration time.Duration
	// Status is that of the answer; 0 if there was none.
	Status int
	// Err says why there was no answer, or no whole one.
	Err error
	// Verdict is what was concluded.
	Verdict Verdict
}

// Reasons to give up; see [Error].
const (
	ReasonFinal    = "final"    // the answer or error is one that no retry changes
	ReasonAttempts = "attempts" // the last attempt has been made
	ReasonDeadline = "deadline" // the next attempt would come too late, for the transport or for the context
	ReasonContext  = "context"  // the context of the request has ended
	ReasonBudget   = "budget"   // the retry budget is used up
	ReasonBreaker  = "breaker"  // the circuit breaker refuses
	ReasonTTL      = "ttl"      // the server may have forgotten the key
)

// An Error is the end of a request with a key that got no answer, or an answer that says
// nothing about the request. It matches, with errors.Is, [ErrOutcomeUnknown] if the request
// may have been executed, what else of the errors of this package applies, and Err.
// Without ErrOutcomeUnknown and [ErrAnswerLost], nothing of this request was executed.
type Error struct {
	// Key is the key to try again with, as the header field has it: [WithKey] takes it,
	// with the same method, URL and body, and an [Entry] also when it was made and that it
	// may have been sent. The text of the error does not show it.
	Key string
	// Reason is why no further attempt was made: [ReasonFinal] or another of these
	// constants. It can be used as a metric label.
	Reason string
	// Attempts are all tries, the first one first. One that a circuit breaker has refused
	// was not sent.
	Attempts []Attempt
	// Problem is the problem document of the last answer, if it had one.
	Problem *problem.Document
	// Err is why the last attempt failed.
	Err error

	is []error
}

// Error says what is known, what was tried and what came last.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case len(e.is) > 0:
		b.WriteString(e.is[0].Error())
	default:
		b.WriteString("client: not executed")
	}
	fmt.Fprintf(&b, " (key hash %s, attempts: %d, given up: %s)", keyHash(e.Key), len(e.Attempts), e.Reason)
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// verdict is what the error says about the request to whoever made it.
func (e *Error) verdict() Verdict {
	switch {
	case errors.Is(e, ErrKeyReused), errors.Is(e, ErrHeld), errors.Is(e, ErrAnswerLost), errors.Is(e, ErrKeyExpired):
		return Final
	case errors.Is(e, ErrOutcomeUnknown):
		return Unknown
	case e.Reason == ReasonFinal:
		return Final
	default:
		return Retry
	}
}

// Unwrap returns the errors that it matches.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return e.is
	}
	return append(append([]error(nil), e.is...), e.Err)
}
