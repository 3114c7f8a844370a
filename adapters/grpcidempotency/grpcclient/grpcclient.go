// Package grpcclient makes clients of google.golang.org/grpc send an idempotency key with each unary
// call, and lets the keys of HTTP requests through a grpc-gateway. It does not try again: the retry
// policy of gRPC does, and sends one key with every try.
package grpcclient

import (
	"context"
	"net/textproto"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/rpckey"
	"example.com/idempotency/problem"
)

var _ grpc.UnaryClientInterceptor = Unary

// Unary is a grpc.UnaryClientInterceptor that adds the metadata idempotency-key to calls:
//
//	conn, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(grpcclient.Unary, retry))
//
// Calls that have it keep it. The key is that of client.WithKey in the call's context; in a step of a
// run it is derived from the step; otherwise it is a new one. A program that calls again after a
// failure, with the same intent, uses client.WithKey. client.WithoutKey sends none.
func Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if md, _ := metadata.FromOutgoingContext(ctx); len(md.Get(rpckey.Field)) > 0 {
		return next(ctx, method, req, reply, conn, opts...)
	}
	key, end, err := rpckey.For(ctx)
	if err != nil {
		return &keyError{err}
	}
	defer end()
	if key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpckey.Field, key)
	}
	return next(ctx, method, req, reply, conn, opts...)
}

// A keyError is an error of package client, or of a step, with a code.
type keyError struct{ error }

// GRPCStatus returns the status of the error.
func (e *keyError) GRPCStatus() *status.Status {
	return status.New(codes.FailedPrecondition, e.Error())
}

func (e *keyError) Unwrap() error { return e.error }

// IncomingHeader lets a gateway hand on the key of an HTTP request:
//
//	runtime.WithIncomingHeaderMatcher(grpcclient.IncomingHeader(runtime.DefaultHeaderMatcher))
//
// next decides about any other field.
func IncomingHeader(next func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if strings.EqualFold(name, rpckey.Field) {
			return rpckey.Field, true
		}
		return next(name)
	}
}

// OutgoingHeader lets a gateway tell its HTTP clients what a guard says of the call: the fields
// Idempotent-Replayed, Idempotency-Error and Retry-After. next decides about any other field.
func OutgoingHeader(next func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		switch field := textproto.CanonicalMIMEHeaderKey(name); field {
		case response.ReplayedHeader, problem.Header, "Retry-After":
			return field, true
		}
		return next(name)
	}
}
