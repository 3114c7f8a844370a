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
	if given, ok := errors.AsType[*Error](err); ok {
		return given.verdict()
	}
	switch {
	case malformed(err), notTrusted(err):
		return Settled
	case is[*refusedByBreaker](err):
		return Retry
	case notSent(err), failedTo(err, "dial"), failedTo(err, "proxyconnect"):
		return Retry
	default:
		return InDoubt
	}
}

// is reports whether an error is, or wraps, one of type T.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// failedTo reports whether an error is that of an operation of package net.
func failedTo(err error, op string) bool {
	failed, ok := errors.AsType[*net.OpError](err)
	return ok && failed.Op == op
}

// malformed reports whether an error is one of the request itself.
func malformed(err error) bool {
	parse, ok := errors.AsType[*url.Error](err)
	return is[url.EscapeError](err) || is[url.InvalidHostError](err) || ok && parse.Op == "parse" ||
		errors.Is(err, ErrKeyInvalid) || errors.Is(err, ErrBodyTooLarge)
}

// notTrusted reports whether an error says that the other side is not the server, or does
// not speak TLS.
func notTrusted(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err) || is[tls.RecordHeaderError](err) || errors.Is(err, http.ErrSchemeMismatch)
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
