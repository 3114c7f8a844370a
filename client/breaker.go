package client

import (
	"fmt"
	"net/http"

	"example.com/idempotency/client/internal/truncate"
)

// This file sends attempts through a circuit breaker.

// A Breaker is a circuit breaker: it refuses requests to a server that is known to fail.
// The TwoStepCircuitBreaker of github.com/sony/gobreaker/v2 is one as it stands.
type Breaker interface {
	// Allow asks whether an attempt may be made. An error ends the request. Otherwise
	// done is called once, with nil if the server answered below 500, and an error if it
	// answered otherwise, or not at all.
	Allow() (done func(err error), err error)
}

// A statusError stands for an answer where an error is wanted.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("status %d %s", int(s), http.StatusText(int(s)))
}

// roundTrip makes an attempt if the breaker allows it, or is nil, and reports the result also
// if base panics.
func roundTrip(r *http.Request, base http.RoundTripper, breaker Breaker) (resp *http.Response, err error) {
	if breaker == nil {
		return hasResult(base.RoundTrip(r))
	}
	done, err := breaker.Allow()
	if err != nil {
		closeBody(r)
		return nil, &refusedByBreaker{err}
	}
	result := error(errNoResult)
	defer func() { done(result) }()
	resp, err = hasResult(base.RoundTrip(r))
	switch {
	case err != nil:
		result = err
	case resp.StatusCode >= http.StatusInternalServerError:
		result = statusError(resp.StatusCode)
	default:
		result = nil
	}
	return resp, err
}

// hasResult sees to it that an attempt has a result. Errors of base may hold what the peer has sent.
func hasResult(resp *http.Response, err error) (*http.Response, error) {
	if resp == nil && err == nil {
		err = errNoResult
	}
	return resp, truncate.Error(err)
}

// refusedByBreaker is the error of an attempt that was not made.
type refusedByBreaker struct{ err error }

func (e *refusedByBreaker) Error() string { return "circuit breaker: " + e.err.Error() }
func (e *refusedByBreaker) Unwrap() error { return e.err }
