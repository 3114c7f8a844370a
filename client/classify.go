package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"example.com/idempotency/client/profile"
)

// This file judges the result of one attempt. What earlier attempts leave open is in
// doubt.go.

// A Verdict is what the result of an attempt says about the request.
type Verdict int

// The verdicts of [Classify]. The zero Verdict is none of them.
const (
	// Settled: another attempt would change nothing, or is wrong.
	Settled Verdict = iota + 1
	// Retry: this attempt did nothing; another one may succeed.
	Retry
	// InDoubt: the request may have been executed, or is being executed. Another attempt is
	// right with the same key at a server that honours keys, or with a method that is
	// idempotent by definition. Otherwise it is a second effect.
	InDoubt
)

// String returns the verdict's name: settled, retry or in-doubt, and none for any other
// value.
func (v Verdict) String() string {
	switch v {
	case Settled:
		return "settled"
	case Retry:
		return "retry"
	case InDoubt:
		return "in-doubt"
	default:
		return "none"
	}
}

// Classify judges the result of the only attempt of a request: a response or an error of an
// http.RoundTripper or http.Client. It knows the refusals of this library's server half; see
// [ClassifyBy] for other servers. It may read the beginning of an error document, and the
// body of the response can be read as before.
//
// An error to connect is Retry only for a RoundTripper that makes one attempt: nobody can
// tell from the last error of several attempts what became of the others.
func Classify(resp *http.Response, err error) Verdict {
	return ClassifyBy(profile.Guard(), resp, err)
}

// ClassifyBy is [Classify] for the answers of the server that a profile describes.
func ClassifyBy(server profile.Server, resp *http.Response, err error) Verdict {
	if err != nil {
		return classifyError(err)
	}
	if resp == nil {
		return InDoubt
	}
	a, err := readAnswer(resp, &server)
	if err != nil {
		return classifyError(err)
	}
	return a.verdict()
}

// verdict judges an answer by itself, as if it were the first.
func (a *answer) verdict() Verdict {
	if a.replayed {
		return Settled // the recorded answer does not change
	}
	switch a.meaning {
	case profile.NotRun:
		return Retry
	case profile.InFlight, profile.Unanswered:
		return InDoubt
	case profile.Own, profile.Refused, profile.Reused, profile.Held, profile.Lost:
		return Settled
	}
	switch {
	case a.useless() && a.status < http.StatusInternalServerError:
		return Settled
	case a.inFlight():
		return InDoubt
	case a.status == http.StatusRequestTimeout, a.status == http.StatusTooEarly, a.status == http.StatusTooManyRequests:
		return Retry
	case a.status >= http.StatusInternalServerError, a.hinted:
		return InDoubt
	default:
		return Settled
	}
}

// useless reports whether the server says that another attempt makes no sense. That does not
// tell what a server error has done.
func (a *answer) useless() bool { return a.hinted && !a.again }

// inFlight reports whether an answer says that the request is being executed. Servers that
// do not name the reason tell this conflict from others by Retry-After.
func (a *answer) inFlight() bool {
	if a.meaning != profile.Silent || a.coded {
		return a.meaning == profile.InFlight
	}
	return a.status == http.StatusConflict && a.retryAfter
}

// unsupported reports whether a server says that it cannot serve such a request at all, now or
// later. A handler may say so after its effect, as with any server error.
func (a *answer) unsupported() bool {
	return a.status == http.StatusNotImplemented || a.status == http.StatusHTTPVersionNotSupported
}

func classifyError(err error) Verdict {
	var (
		given   *Error
		op      *net.OpError
		breaker *refusedByBreaker
	)
	switch {
	case errors.As(err, &given):
		return given.verdict()
	case malformed(err), notTrusted(err):
		return Settled
	case errors.As(err, &breaker):
		return Retry
	case notSent(err), errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return Retry
	default:
		return InDoubt
	}
}

// malformed reports whether an error is one of the request itself.
func malformed(err error) bool {
	var (
		escape url.EscapeError
		host   url.InvalidHostError
		parse  *url.Error
	)
	return errors.As(err, &escape) || errors.As(err, &host) || errors.As(err, &parse) && parse.Op == "parse" ||
		errors.Is(err, ErrKeyInvalid) || errors.Is(err, ErrBodyTooLarge)
}

// notTrusted reports whether an error says that the other side is not the server, or does
// not speak TLS.
func notTrusted(err error) bool {
	var (
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		invalid     x509.CertificateInvalidError
		record      tls.RecordHeaderError
	)
	return errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &hostname) ||
		errors.As(err, &invalid) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch)
}

// Replayed reports whether a response is a recorded one of this library's server half: the
// request had been executed before, and the server has repeated the answer of that time.
func Replayed(resp *http.Response) bool {
	return resp != nil && guardProfile.IsReplay(resp)
}

// Expires returns when the server forgets the key of the request that a [Transport] has sent for
// this response; ok is false if no answer has said so. From then on, the same request with the
// same key would be a new one. The time is by the clock of this machine, and rather too early
// than too late: it counts from when the request was sent.
func Expires(resp *http.Response) (at time.Time, ok bool) {
	if resp == nil || resp.Request == nil {
		return time.Time{}, false
	}
	key, _ := resp.Request.Context().Value(historyContext{}).(requestKey)
	return key.expires, !key.expires.IsZero()
}

var guardProfile = profile.Guard()
