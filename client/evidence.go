package client

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
)

// An evidence is how far an attempt of an *http.Transport got. Of other RoundTrippers there
// is none, a nil *evidence: they may make several attempts of their own.
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
func (e *evidence) judge(err error) Verdict {
	verdict := classifyError(err)
	var breaker *refusedByBreaker
	switch {
	case verdict == Final || errors.As(err, &breaker):
		return verdict
	case e == nil:
		return Unknown // what did not connect was the last attempt, perhaps not the only one
	case !e.askedForConn.Load():
		return Final // a request that cannot be sent, such as one without a host
	case e.gotConn.Load():
		return Unknown
	default:
		return Retry
	}
}
