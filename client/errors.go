package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"example.com/idempotency/client/profile"
	"example.com/idempotency/problem"
)

// This file has the errors that the client returns, and the reasons in them.

// Errors of a [Transport]. The [*Error] of a request with a key matches them.
var (
	// ErrOutcomeUnknown says that the request may or may not have been executed. Only
	// another request with the same key and the same bytes finds out; one with a new key
	// may do it again.
	ErrOutcomeUnknown = errors.New("client: outcome unknown")

	// ErrHeld says that the server does not know the outcome either, and will not run the
	// request again until somebody has settled it. It comes with ErrOutcomeUnknown.
	ErrHeld = errors.New("client: outcome unknown to the server and held there")

	// ErrAnswerLost says that the request was executed, and that its answer cannot be had
	// any more. [Error.Problem] or [Error.Answer] may tell where its result is.
	ErrAnswerLost = errors.New("client: executed, but the answer was not kept")

	// ErrKeyReused says that the key was used before with another request. This one was
	// not executed. It comes with ErrOutcomeUnknown if the other may be an earlier attempt:
	// one of a program that has made other bytes for the same [Intent], or of a GetBody that
	// returns others.
	ErrKeyReused = errors.New("client: key was used for another request")

	// ErrKeyExpired says that a key is older than the server remembers: sent again it
	// would be a new one. See [WithTTL]. It comes with ErrOutcomeUnknown if the key may
	// have been sent before.
	ErrKeyExpired = errors.New("client: key is older than the server remembers")

	// ErrKeyInvalid says that the key that the caller has chosen is not a valid value of the
	// header field, or not the key in the body. Nothing was sent.
	ErrKeyInvalid = errors.New("client: invalid key")

	// ErrBodyTooLarge says that the body of a request would have to be held in memory to
	// be sent again, and is over the limit; see [WithMaxBody]. Nothing was sent.
	ErrBodyTooLarge = errors.New("client: request body too large to be sent again")
)

// Errors of attempts.
var (
	errAttemptTimeout error = attemptTimeout{}
	errSentTooLate          = errors.New("the key ended before the request was sent")
	errNoResult             = errors.New("attempt ended without a result")
)

// An attemptTimeout is the end of an attempt that took too long. It is a net.Error.
type attemptTimeout struct{}

func (attemptTimeout) Error() string   { return "no answer in time" }
func (attemptTimeout) Timeout() bool   { return true }
func (attemptTimeout) Temporary() bool { return true }

// An Attempt is one try to send a request and get its answer. The server counts otherwise:
// its attempts are runs of the handler, and a try may cause none.
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

// A Reason says why no further attempt was made. The values are stable, and meant to be used
// as metric labels.
type Reason string

// The reasons to give up.
const (
	ReasonSettled  Reason = "settled"  // the answer or error is one that no retry changes
	ReasonAttempts Reason = "attempts" // the last attempt has been made
	ReasonTimeout  Reason = "timeout"  // the next attempt would come too late, for the transport or for the context
	ReasonContext  Reason = "context"  // the context of the request has ended
	ReasonBudget   Reason = "budget"   // the retry budget is used up
	ReasonBreaker  Reason = "breaker"  // the circuit breaker refuses
	ReasonTTL      Reason = "ttl"      // the server may have forgotten the key
	ReasonUnproven Reason = "unproven" // it may have been executed, and nothing says that the server honours keys
)

// An Error is the end of a request with a key that got no answer, or an answer that says
// nothing about the request. It matches, with errors.Is, [ErrOutcomeUnknown] if the request
// may have been executed, what else of the errors of this package applies, and Err.
// Without ErrOutcomeUnknown and [ErrAnswerLost], nothing of this request was executed.
type Error struct {
	// Key is the key to try again with, as it was sent, for a request with the same method,
	// URL and body. [Error.Context] hands it on. The text of the error does not show it.
	Key string
	// Since is when the key was made, as far as that is known.
	Since time.Time
	// Expires is when the server forgets the key, as far as it has said; see [Expires].
	Expires time.Time
	// Reason is why no further attempt was made.
	Reason Reason
	// Attempts are all tries, the first one first. An attempt that a circuit breaker has
	// refused was not sent.
	Attempts []Attempt
	// Problem is the problem document of the last answer, if it had one.
	Problem *problem.Document
	// Answer is the beginning of the body of the last answer, if it was a document that the
	// client has looked into. The text of the error does not show it.
	Answer []byte
	// Err is why the last attempt failed.
	Err error

	is []error
}

// Error tells the outcome, the number of attempts and the last failure.
func (e *Error) Error() string {
	var b strings.Builder
	switch {
	case len(e.is) > 0:
		b.WriteString(e.is[0].Error())
	default:
		b.WriteString("client: not executed")
	}
	fmt.Fprintf(&b, " (key hash %s, attempts: %d", keyHash(e.Key), len(e.Attempts))
	if e.Reason != ReasonSettled {
		fmt.Fprintf(&b, ", given up: %s", e.Reason)
	}
	b.WriteByte(')')
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Context returns a context for the same request at a later time. It has the same key, its
// age is known, and if it may have been executed, that is not forgotten: a 401 does not pass
// for the end of it, and a key that is too old is not sent.
func (e *Error) Context(ctx context.Context) context.Context {
	return Intent{Key: e.Key, Since: e.Since, Expires: e.Expires, Resumed: errors.Is(e, ErrOutcomeUnknown)}.Context(ctx)
}

// Timeout reports whether time has run out: for the request as a whole, or for its last
// attempt. With Temporary, it makes the error a net.Error.
func (e *Error) Timeout() bool {
	var last net.Error
	return e.Reason == ReasonTimeout || errors.As(e.Err, &last) && last.Timeout()
}

// Temporary is the same as Timeout.
func (e *Error) Temporary() bool { return e.Timeout() }

// errorsOf returns the errors that the meaning of an answer stands for; none if it is an
// answer like any other.
func errorsOf(m profile.Meaning) []error {
	switch m {
	case profile.Reused:
		return []error{ErrKeyReused}
	case profile.Held:
		return []error{ErrHeld, ErrOutcomeUnknown}
	case profile.Lost:
		return []error{ErrAnswerLost}
	default:
		return nil
	}
}

// verdict is what the error says about the request to a caller that classifies it.
func (e *Error) verdict() Verdict {
	switch {
	case errors.Is(e, ErrKeyReused), errors.Is(e, ErrHeld), errors.Is(e, ErrAnswerLost), errors.Is(e, ErrKeyExpired):
		return Settled
	case errors.Is(e, ErrOutcomeUnknown):
		return InDoubt
	case e.Reason == ReasonSettled:
		return Settled
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
