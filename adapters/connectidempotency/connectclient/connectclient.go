// Package connectclient makes clients of connectrpc.com/connect send an idempotency key with each
// unary call. It does not try again: what does stands between it and the network, and so sends one
// key with every try.
package connectclient

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"example.com/idempotency/internal/rpckey"
)

// NewInterceptor returns an interceptor that adds the field Idempotency-Key to unary calls:
//
//	bank := bankv1connect.NewBankClient(c, url, connect.WithInterceptors(connectclient.NewInterceptor(), retry))
//
// Calls that have the field keep it. The key is that of client.WithKey in the call's context; in a
// step of a run it is derived from the step; otherwise it is a new one. A program that calls again
// after a failure, with the same intent, uses client.WithKey. client.WithoutKey sends none.
//
// Procedures without side effects, and streams, get no key. The field is gone from the request
// after the call, so a request that is used again is another one.
func NewInterceptor() connect.Interceptor { return interceptor{} }

type interceptor struct{}

// WrapUnary implements [connect.Interceptor].
func (interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		h, field := req.Header(), http.CanonicalHeaderKey(rpckey.Field)
		if len(h[field]) > 0 || req.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects || !req.Spec().IsClient {
			return next(ctx, req)
		}
		key, end, err := rpckey.For(ctx)
		if err != nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
		defer end()
		if key != "" {
			h.Set(field, key)
			defer h.Del(field)
		}
		return next(ctx, req)
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
