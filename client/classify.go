package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"

	"example.com/idempotency/problem"
)

// A Verdict is what the result of an attempt says about the request.
type Verdict int

// The verdicts of [Classify]. The zero Verdict is none of them.
const (
	// Final: another attempt would change nothing, or is wrong.
	Final Verdict = iota + 1
	// Retry: this attempt did nothing; another one may succeed.
	Retry
	// Unknown: the request may have been executed, or is being executed. Another attempt
	// is right with the same key, or with a method that is idempotent by definition, and
	// a second effect otherwise.
	Unknown
)

// String returns the verdict's name: final, retry or unknown, and none for a value that is
// no verdict.
func (v Verdict) String() string {
	switch v {
	case Final:
		return "final"
	case Retry:
		return "retry"
	case Unknown:
		return "unknown"
	default:
		return "none"
	}
}

// Classify judges the result of one attempt, as a [Transport] does: a response or an error
// of an http.RoundTripper or http.Client. To tell the kinds of refusal apart it reads the
// beginning of a problem document; the body of the response can be read as before.
//
// That an error to connect is Retry holds for a RoundTripper that makes one attempt: what
// went before the last attempt of one that retries cannot be told.
func Classify(resp *http.Response, err error) Verdict {
	if err != nil {
		return classifyError(err)
	}
	if resp == nil {
		return Unknown
	}
	p, err := readProblem(resp)
	if err != nil {
		return classifyError(err)
	}
	return classifyAnswer(resp, p)
}

func classifyAnswer(resp *http.Response, p *problem.Document) Verdict {
	if Replayed(resp) {
		return Final // the recorded answer does not change
	}
	if p != nil {
		switch p.Code {
		case problem.StoreUnavailable, problem.ShuttingDown, problem.BodyUnreadable:
			return Retry
		case problem.KeyReused, problem.OutcomeUnknown, problem.ResponseNotKept, problem.AnswerUnreadable:
			return Final
		}
	}
	if inFlight(resp, p) {
		return Unknown
	}
	switch status := resp.StatusCode; status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return Retry
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return Final
	default:
		if status >= http.StatusInternalServerError {
			return Unknown
		}
		return Final
	}
}

// inFlight reports whether an answer says that the request is being executed. Servers that
// do not name the reason tell this conflict from others by Retry-After.
func inFlight(resp *http.Response, p *problem.Document) bool {
	if p != nil && p.Code != "" {
		return p.Code == problem.InFlight
	}
	return resp.StatusCode == http.StatusConflict && resp.Header.Get("Retry-After") != ""
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
		return Final
	case errors.As(err, &breaker):
		return Retry
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		return Retry
	default:
		return Unknown
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

// refusal returns the errors that a problem means in answer to a request with a key; none
// if it is an answer like any other.
func refusal(p *problem.Document) []error {
	if p == nil {
		return nil
	}
	switch p.Code {
	case problem.KeyReused:
		return []error{ErrKeyReused}
	case problem.OutcomeUnknown:
		return []error{ErrHeld, ErrOutcomeUnknown}
	case problem.ResponseNotKept, problem.AnswerUnreadable:
		return []error{ErrAnswerLost}
	default:
		return nil
	}
}

// saysNothing reports whether a final answer was given without looking at what became of
// earlier attempts: by whoever stands before the guard, such as an authentication whose
// token has expired in the meantime, or by the guard before it has found the record.
// Whatever comes from behind the guard carries the key again.
func (c *call) saysNothing(resp *http.Response, p *problem.Document) bool {
	if Replayed(resp) {
		return false
	}
	if p != nil {
		switch p.Code {
		case problem.KeyMissing, problem.KeyInvalid, problem.BodyTooLarge, problem.FingerprintFailed, problem.ScopeUnresolved, problem.ReplayDenied:
			return true
		}
	}
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, // which http.Client follows with a GET
		http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusMisdirectedRequest:
		return resp.Header.Get(c.t.set.header) == ""
	default:
		return false
	}
}

// Replayed reports whether a response is a recorded one: the request had been executed
// before, and the server has repeated the answer of that time.
func Replayed(resp *http.Response) bool {
	return resp != nil && resp.Header.Get(replayedHeader) == "true"
}
