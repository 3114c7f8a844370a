// Package grpcidempotency makes interceptors of a guard of package idempotency, for servers of
// google.golang.org/grpc. It protects unary calls. Package grpcclient is the other half.
package grpcidempotency

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"example.com/idempotency"
	"example.com/idempotency/internal/rpc"
)

// A ScopeFunc returns whose key a call carries: the tenant, account or principal that an interceptor
// outside has verified, and has left in the context. An empty scope, and an error,
// refuse the call with PERMISSION_DENIED; an error that wraps idempotency.ErrUnauthenticated refuses
// it with UNAUTHENTICATED, and one that wraps idempotency.ErrTryLater with UNAVAILABLE. The client
// does not see the text.
//
// A guard asks it in place of its idempotency.ScopeFunc. The same scope and key of a call and of an
// HTTP request name the same record, and are never the same payload.
type ScopeFunc func(context.Context) (string, error)

// SharedScope is the [ScopeFunc] that puts the keys of all callers into one namespace.
func SharedScope(context.Context) (string, error) { return idempotency.SharedScope(nil) }

// An Option changes what [NewInterceptors] returns.
type Option func(*rpc.Config)

// WithProcedure changes the settings of the guard for one procedure:
//
//	grpcidempotency.WithProcedure(bankv1.Bank_Pay_FullMethodName, idempotency.WithRecovery(idempotency.Hold))
//
// If it is given twice for a procedure, the options of both count. [NewInterceptors] panics on an
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
func DefaultOutcome(err error) idempotency.Outcome {
	if err == nil {
		return idempotency.Final
	}
	return errorReply(err).Outcome()
}

// NewInterceptors returns the two interceptors that protect the calls of a server with a guard. A server
// needs both:
//
//	unary, stream := grpcidempotency.NewInterceptors(guard, tenant)
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(recovery, authenticate, unary),
//		grpc.ChainStreamInterceptor(authenticateStream, stream))
//
// The one for streams protects none: it refuses those that carry a key, as [WithStreams] says. Without it,
// such a stream would run once for each try.
//
// A call's key is in its metadata, under idempotency-key or what idempotency.WithHeader names, in
// lower case. A call without one goes to the handler untouched unless idempotency.WithRequired is
// set; [WithProcedure] sets it for one procedure. A key is bound to the procedure and the message. In
// a handler, the run is found with idempotency.FromContext. Events name the route by the last 64
// bytes of the procedure, unless [WithProcedure] with idempotency.WithRoute names it.
//
// Interceptors after it belong to the run, and what they set is recorded. Those before it see every
// call, replays included; one of them should recover from panics, because grpc does not. A replay
// has the field idempotent-replayed in its header.
//
// The options of the guard for the body, the fingerprint, the status and the writer of refusals do not
// count: calls have none of them. NewInterceptors panics if the guard has an option that could not be
// kept for a call: WithKeyFunc, WithReference, WithAuthorizeReplay or WithExpiryHeader. Put the
// authorization before the interceptor, where it sees every call. It panics too if guard or scope is
// nil.
func NewInterceptors(guard *idempotency.Guard, scope ScopeFunc, opts ...Option) (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	c := rpc.Config{
		Module: "grpcidempotency: NewInterceptors", Guard: guard, Scope: rpc.ScopeFunc(scope), Shared: SharedScope,
		Procedures: make(map[string][]idempotency.Option),
	}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	i := &interceptor{rpc.NewServer(c)}
	return i.unary, i.stream
}

// An interceptor protects the calls of a server.
type interceptor struct{ server *rpc.Server }

func (i *interceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	x := &exchange{}
	if !i.server.OnlyLooks(info.FullMethod) {
		x.hold(ctx)
	}
	a := i.server.Handle(ctx, rpc.Call{
		Procedure: info.FullMethod,
		Values:    func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) },
		Gateway:   func() bool { return throughGateway(ctx) },
		Payload:   func() ([]byte, error) { return payload(req) },
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
		return replay(ctx, a.Replay)
	case a.Refusal != nil:
		return nil, refuse(ctx, a.Refusal)
	default:
		x.send()
		return x.res, x.err
	}
}

// throughGateway reports whether a call has come through grpc-gateway, which hands on fields of HTTP under
// names of its own.
func throughGateway(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	for name := range md {
		if strings.HasPrefix(name, "grpcgateway-") {
			return true
		}
	}
	return false
}

func (i *interceptor) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx := stream.Context()
	values := func(name string) []string { return metadata.ValueFromIncomingContext(ctx, name) }
	// Of grpc.UnknownServiceHandler there is no service.
	if r := i.server.RefuseStream(ctx, info.FullMethod, srv != nil, values); r != nil {
		return refuse(ctx, r)
	}
	return next(srv, stream)
}
