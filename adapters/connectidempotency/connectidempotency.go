// Package connectidempotency makes an interceptor of a guard of package idempotency, for handlers
// of connectrpc.com/connect. It protects unary calls over all three protocols: Connect, gRPC and
// gRPC-Web. Package connectclient is the other half.
//
// A guard around a Connect handler, as around any http.Handler, refuses calls with a key: a call may
// fail although its HTTP status is 200, and equal messages may differ in their bytes.
package connectidempotency

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"

	"example.com/idempotency"
	"example.com/idempotency/internal/rpc"
)

// A ScopeFunc returns whose key a call carries: the tenant, account or principal that an interceptor
// or a middleware outside has verified, and has left in the context. An empty scope, and an error,
// refuse the call with PERMISSION_DENIED; an error that wraps idempotency.ErrUnauthenticated refuses
// it with UNAUTHENTICATED, and one that wraps idempotency.ErrTryLater with UNAVAILABLE. The client
// does not see the text.
//
// A guard asks it in place of its idempotency.ScopeFunc. The same scope and key of a call and of an
// HTTP request name the same record, and are never the same payload.
type ScopeFunc func(context.Context) (string, error)

// SharedScope is the [ScopeFunc] that puts the keys of all callers into one namespace.
func SharedScope(context.Context) (string, error) { return idempotency.SharedScope(nil) }

// An Option changes what [NewInterceptor] returns.
type Option func(*rpc.Config)

// WithProcedure changes the settings of the guard for one procedure:
//
//	connectidempotency.WithProcedure(bankv1connect.BankPayProcedure, idempotency.WithRecovery(idempotency.Hold))
//
// If it is given twice for a procedure, the options of both count. [NewInterceptor] panics on an
// invalid option.
func WithProcedure(procedure string, opts ...idempotency.Option) Option {
	return func(c *rpc.Config) {
		c.Procedures[procedure] = append(c.Procedures[procedure], opts...)
	}
}

// WithOutcome sets how the result of a handler is judged; err is nil for success. The default, also
// for nil, is [DefaultOutcome]. idempotency.Operation.SetOutcome takes precedence.
func WithOutcome(f func(err error) idempotency.Outcome) Option {
	return func(c *rpc.Config) { c.Outcome = f }
}

// WithStreams lets streams through that carry a key, or belong to a procedure that requires one.
// They are not protected. By default they are refused with UNIMPLEMENTED.
func WithStreams(on bool) Option {
	return func(c *rpc.Config) { c.Streams = on }
}

// DefaultOutcome is the rule used without [WithOutcome]. It judges by code. Success and definite
// refusals (INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION,
// OUT_OF_RANGE, UNIMPLEMENTED) are idempotency.Final. RESOURCE_EXHAUSTED and UNAUTHENTICATED are
// idempotency.NotExecuted. Any other code is idempotency.Unknown. The refusal of another guard,
// which the handler passes on from a service behind it, is never Final.
func DefaultOutcome(err error) idempotency.Outcome { return replyOf(nil, err).Outcome() }

// NewInterceptor returns an interceptor that protects handlers with a guard:
//
//	path, handler := bankv1connect.NewBankHandler(bank, connect.WithInterceptors(
//		authenticate, connectidempotency.NewInterceptor(guard, tenant)))
//
// A call's key is in its header, as that of an HTTP request: Idempotency-Key, or what
// idempotency.WithHeader names. A call without one goes to the handler untouched unless
// idempotency.WithRequired is set, and so does a procedure that is declared to have no side effects.
// A key is bound to the procedure and the message. In a handler, the run is found with
// idempotency.FromContext. Events name the route by the last 64 bytes of the procedure, unless
// [WithProcedure] with idempotency.WithRoute names it.
//
// Interceptors after it belong to the run, and what they set is recorded. Those before it see every
// call, replays included. A replay has the field Idempotent-Replayed in its header.
//
// The options of the guard for the body, the fingerprint, the status and the writer of refusals do not
// count: calls have none of them. NewInterceptor panics if the guard has an option that could not be
// kept for a call: WithKeyFunc, WithReference, WithAuthorizeReplay or WithExpiryHeader. Put the
// authorization before the interceptor, where it sees every call. It panics too if guard or scope is
// nil.
func NewInterceptor(guard *idempotency.Guard, scope ScopeFunc, opts ...Option) connect.Interceptor {
	c := rpc.Config{
		Module: "connectidempotency: NewInterceptor", Guard: guard, Scope: rpc.ScopeFunc(scope), Shared: SharedScope,
		Procedures: make(map[string][]idempotency.Option),
	}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	return &interceptor{rpc.NewServer(c)}
}

type interceptor struct{ server *rpc.Server }

var errClient = connect.NewError(connect.CodeInternal,
	errors.New("connectidempotency: this interceptor is for handlers; package connectclient has that for clients"))

// WrapUnary implements [connect.Interceptor].
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		spec := req.Spec()
		switch {
		case spec.IsClient:
			return nil, errClient
		case spec.IdempotencyLevel == connect.IdempotencyNoSideEffects:
			return next(ctx, req)
		}
		x := newExchange(ctx)
		a := i.server.Handle(ctx, rpc.Call{
			Procedure: spec.Procedure,
			Values:    req.Header().Values,
			Payload:   func() ([]byte, error) { return payload(req.Any()) },
			Run: func(ctx context.Context) *rpc.Reply {
				reply := x.run(ctx, next, req)
				if i.server.Outcome != nil {
					reply.Judged = i.server.Outcome(x.err)
				}
				return reply
			},
		})
		switch {
		case a.Pass:
			return next(ctx, req)
		case a.Replay != nil:
			return x.replay(a.Replay, spec)
		case a.Refusal != nil:
			return nil, x.refuse(a.Refusal)
		default:
			return x.res, x.err
		}
	}
}

// WrapStreamingClient implements [connect.Interceptor].
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements [connect.Interceptor].
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if r := i.server.RefuseStream(ctx, conn.Spec().Procedure, true, conn.RequestHeader().Values); r != nil {
			return errorOf(r)
		}
		return next(ctx, conn)
	}
}

// An exchange is one call on its way through the guard.
type exchange struct {
	info            connect.CallInfo // nil outside of a server
	header, trailer http.Header      // of info, as it was before the run

	res connect.AnyResponse
	err error
}

func newExchange(ctx context.Context) *exchange {
	x := &exchange{}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		x.info, x.header, x.trailer = info, info.ResponseHeader().Clone(), info.ResponseTrailer().Clone()
	}
	return x
}
