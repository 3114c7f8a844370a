package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// This file finds out whether an attempt has sent anything.

// A SingleTripper is a RoundTripper on top of others that tells how it treats a request. If
// SingleTrip returns true, it hands each request on once, with its context, and sends it in
// no other way. A request that got no connection below it is then known not to have been
// sent, as with an *http.Transport. [AsSingleTrip] says it for a RoundTripper that does not
// have the method, such as those of otelhttp and oauth2.
type SingleTripper interface {
	http.RoundTripper
	SingleTrip() bool
}

// AsSingleTrip vouches for a RoundTripper: it hands each request on once, with its context,
// as [SingleTripper] explains. If that is wrong, an attempt that was executed may count as
// one that was not sent.
func AsSingleTrip(rt http.RoundTripper) SingleTripper { return singleTrip{rt} }

type singleTrip struct{ http.RoundTripper }

func (singleTrip) SingleTrip() bool { return true }

// CloseIdleConnections closes those of the RoundTripper, if it has the method.
func (s singleTrip) CloseIdleConnections() {
	if rt, ok := s.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		rt.CloseIdleConnections()
	}
}

// seesEverything reports whether whatever is sent through a RoundTripper is seen from above.
func seesEverything(rt http.RoundTripper) bool {
	if _, ok := rt.(*http.Transport); ok {
		return true
	}
	single, ok := rt.(SingleTripper)
	return ok && single.SingleTrip()
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

// An evidence is what an *http.Transport tells about an attempt: its connections, and each
// time that it sends the key. It does so also under another RoundTripper, unless that keeps
// the context to itself.
type evidence struct {
	direct                bool // whatever is sent is seen
	askedForConn, gotConn atomic.Bool
	sent                  atomic.Int64
}

// gather returns the context of an attempt that is watched.
func (c *call) gather(ctx context.Context) (context.Context, *evidence) {
	e := &evidence{direct: seesEverything(c.t.base)}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { e.askedForConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { e.gotConn.Store(true) },
		WroteHeaderField: func(name string, _ []string) {
			if c.key.field != "" && strings.EqualFold(name, c.key.field) {
				e.sent.Add(1)
			}
		},
	}), e
}

// sentBefore reports whether an attempt that brought an answer had sent the request more
// than once. An *http.Transport does so on its own, where the request has a key and its
// connection was an old one.
func (e *evidence) sentBefore() bool { return e.sent.Load() > 1 }

// judge corrects the verdict on an error by the evidence, and reports whether the request may
// have been executed, be it by an earlier try of base.
func (e *evidence) judge(err error) (verdict Verdict, executed bool) {
	verdict = classifyError(err)
	var breaker *refusedByBreaker
	var below *Error
	switch {
	case errors.As(err, &breaker):
		return verdict, false
	case malformed(err): // of a second address, if the request has gone out to a first one
		return verdict, e.sent.Load() > 0
	case errors.As(err, &below): // the error of another Transport, which has looked itself
		return verdict, errors.Is(below, ErrOutcomeUnknown)
	case notSent(err):
		return Retry, e.sent.Load() > 0
	}
	asked := e.askedForConn.Load()
	var op *net.OpError
	refused := errors.As(err, &op) && op.Op == "dial" // by what base needs first, such as a token
	nothingSent := e.direct && !e.gotConn.Load() && (asked || refused || unsendable(err))
	switch {
	case verdict == Settled:
		return Settled, !nothingSent
	case !nothingSent:
		return InDoubt, true
	case asked, refused:
		return Retry, false
	default:
		return Settled, false
	}
}

// unsendable reports whether an error has the form of those that an *http.Transport gives
// for a request that it cannot send, such as one without a host. They have no types. The
// errors of a protocol that is registered with it have another form.
func unsendable(err error) bool {
	for _, start := range []string{"http: ", "net/http: ", "unsupported protocol scheme"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}
