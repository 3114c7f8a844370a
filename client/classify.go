package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
)

// This file judges the result of an attempt that is the only one, and errors in particular.

// Classify judges the result of the only attempt of a request: a response or an error of an
// http.RoundTripper or http.Client. It knows the refusals of this library's server half. It may
// read the beginning of an error document, and the body of the response can be read as before.
//
// An error to connect is Retry only for a RoundTripper that makes one attempt: nobody can
// tell from the last error of several attempts what became of the others.
func Classify(resp *http.Response, err error) Verdict {
	if err != nil {
		return classifyError(err)
	}
	if resp == nil {
		return InDoubt
	}
	a, err := readAnswer(resp, &guardProfile)
	if err != nil {
		return classifyError(err)
	}
	return rule(&a, true, false).verdict()
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

// NotSent marks an error of a RoundTripper that has failed before it sent anything of the
// request: it could not get a token, for example. Any error with a method
//
//	NotSent() bool
//
// that returns true does the same.
func NotSent(err error) error { return &notSentError{err} }

type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }
func (e *notSentError) NotSent() bool { return true }

func notSent(err error) bool {
	var says interface{ NotSent() bool }
	return errors.As(err, &says) && says.NotSent()
}
