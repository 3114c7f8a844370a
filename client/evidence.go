package client

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// An evidence is how far an attempt of an *http.Transport got. Other RoundTrippers may
// make several attempts of their own, so that nothing follows from it there.
type evidence struct {
	askedForConn, gotConn atomic.Bool
}

func (e *evidence) gather(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { e.askedForConn.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { e.gotConn.Store(true) },
	})
}

// judge corrects the verdict on an error by what is known of how it came about.
func (e *evidence) judge(base http.RoundTripper, err error) Verdict {
	verdict := classifyError(err)
	_, plain := base.(*http.Transport)
	var breaker *refusedByBreaker
	switch {
	case verdict == Final || errors.As(err, &breaker):
		return verdict
	case !plain && verdict == Retry:
		return Unknown // the last attempt did not connect, but which one was the last?
	case !plain:
		return verdict
	case !e.askedForConn.Load():
		return Final // a request that cannot be sent, such as one without a host
	case e.gotConn.Load():
		return Unknown
	default:
		return Retry
	}
}
