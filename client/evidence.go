package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// This file finds out whether an attempt has sent anything.

// An evidence is what an *http.Transport tells about an attempt: its connections, and each
// time that it sends the key. It does so also under another RoundTripper, unless that keeps
// the context to itself.
type evidence struct {
	direct                bool // whatever is sent is seen
	askedForConn, gotConn atomic.Bool
	sent                  atomic.Int64
	written               atomic.Bool // the whole request, for the first time

	// tooLate and giveUp are set for a request that must not go out after its key has ended.
	tooLate func() bool
	giveUp  func()
}

// watch gives the request up if the life of its key is over before it has been written. A connection may
// be long in coming, or the body: the server would take the key for a new one.
func (e *evidence) watch(life time.Duration) *time.Timer {
	return time.AfterFunc(life, func() {
		if !e.written.Load() {
			e.giveUp()
		}
	})
}

// connected looks at the clock again: the process may have been suspended, or the clock set.
func (e *evidence) connected() {
	e.gotConn.Store(true)
	if e.tooLate != nil && e.tooLate() {
		e.giveUp()
	}
}

// gather returns the context of an attempt that is watched, with the key in a header field or
// in none.
func gather(ctx context.Context, base http.RoundTripper, field string) (context.Context, *evidence) {
	e := &evidence{direct: seesEverything(base)}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { e.askedForConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { e.connected() },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				e.written.Store(true)
			}
		},
		WroteHeaderField: func(name string, _ []string) {
			if field != "" && strings.EqualFold(name, field) {
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
	below, passed := errors.AsType[*Error](err)
	switch {
	case is[*refusedByBreaker](err):
		return verdict, false
	case malformed(err): // of a second address, if the request has gone out to a first one
		return verdict, e.sent.Load() > 0
	case passed: // the error of another Transport, which has looked itself
		return verdict, errors.Is(below, ErrOutcomeUnknown)
	case notSent(err):
		return Retry, e.sent.Load() > 0
	}
	asked := e.askedForConn.Load()
	refused := failedTo(err, "dial") // by what base needs first, such as a token
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
