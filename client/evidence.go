package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// An evidence is what is seen of an attempt from below: an *http.Transport tells of its
// connections, and of each time that it sends the key. It does so also under another
// RoundTripper, unless that keeps the context to itself.
type evidence struct {
	direct                bool // base is an *http.Transport: whatever is sent is seen
	askedForConn, gotConn atomic.Bool
	sent                  atomic.Int64
}

// gather returns the context of an attempt that is watched.
func (t *Transport) gather(ctx context.Context) (context.Context, *evidence) {
	e := new(evidence)
	_, e.direct = t.base.(*http.Transport)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { e.askedForConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { e.gotConn.Store(true) },
		WroteHeaderField: func(name string, _ []string) {
			if strings.EqualFold(name, t.set.header) {
				e.sent.Add(1)
			}
		},
	}), e
}

// sentBefore reports whether an attempt that brought an answer had sent the request more
// than once. An *http.Transport does so on its own, where the request has a key and its
// connection was an old one.
func (e *evidence) sentBefore() bool { return e.sent.Load() > 1 }

// judge corrects the verdict on an error by what is known of how it came about, and tells
// whether the request may have been executed, be it by an earlier try of base.
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
	}
	asked := e.askedForConn.Load()
	nothingSent := e.direct && !e.gotConn.Load() && (asked || unsendable(err))
	switch {
	case verdict == Final:
		return Final, !nothingSent
	case !nothingSent:
		return Unknown, true
	case asked:
		return Retry, false
	default:
		return Final, false
	}
}

// unsendable reports whether an error has the form of those that an *http.Transport gives
// for a request that it cannot send, such as one without a host. They have no types. What
// a protocol that is registered with it has met is none of them.
func unsendable(err error) bool {
	for _, start := range []string{"http: ", "net/http: ", "unsupported protocol scheme"} {
		if strings.HasPrefix(err.Error(), start) {
			return true
		}
	}
	return false
}
