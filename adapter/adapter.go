// Package adapter is for authors of adapters between a guard and another library: a framework whose handlers
// it protects by middleware or interceptors, one that traces, or a database whose transactions a run can
// join. An adapter for a framework calls idempotency.Do for each call that has a key, and decides the rest
// itself.
package adapter

import (
	"context"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/hook"
	"example.com/idempotency/problem"
)

// A Guard is a guard as an adapter sees it. Make one with [For]; its zero value is not usable. Its
// methods are safe for concurrent use.
type Guard struct {
	hook  hook.Guard
	route string
}

// For returns what an adapter needs of g.
func For(g *idempotency.Guard) Guard { return Guard{hook: g.Hook()} }

// Named returns the same guard, whose reports name a route. Without it, they have the label of
// idempotency.WithRoute. The names should be few: they become labels of metrics.
func (g Guard) Named(route string) Guard { return Guard{g.hook, route} }

// OnlyLooks reports whether the guard has idempotency.WithShadow. An adapter asks before it refuses a
// call itself.
func (g Guard) OnlyLooks() bool { return g.hook.OnlyLooks() }

// StoreTimeout returns how long a call of the store may take until it is given up: two seconds, a third of
// the lease, or what the client of the store waits for a reply, whichever is least. It is 0 with a memory store.
// Calls that send or read more than a MiB get longer.
func (g Guard) StoreTimeout() time.Duration { return g.hook.Engine().CallTimeout() }

// Passes reports whether the guard has nothing to do with a request of HTTP: its method is not protected, or
// it has no key and needs none. An adapter calls the handler then, without the guard. So it need not make an
// http.Request before it knows that the guard needs one. keyed says whether the request has the field
// [Settings].KeyHeader, whatever its value. If heard is true, somebody wants to know of such requests, and the
// adapter calls [Guard.ReportPassed] first. Under idempotency.WithShadow, an adapter does not ask.
func (g Guard) Passes(method string, keyed bool) (passes, heard bool) {
	return g.hook.Passes(method, keyed)
}

// ReportPassed reports a request of HTTP that has no key and passes, as [event.Bypassed].
func (g Guard) ReportPassed(ctx context.Context, method string) {
	g.hook.ReportPassed(ctx, method, g.route)
}

// PassesNested reports whether ctx belongs to a run that holds the key of a scope already, and if so
// reports it as [event.Nested]. An adapter then calls the handler without Do, as the handler of a guard
// does. The error says that the guard of that run has other settings, so that those of this one would be
// lost: the adapter refuses the call as [problem.Misplaced].
func (g Guard) PassesNested(ctx context.Context, scope, key string) (bool, error) {
	return g.hook.PassesNested(ctx, g.route, scope, key)
}

// ReportRefused reports a call that an adapter has refused before it came to Do, as [event.Refused]. The
// scope is empty if it is not known, and cause is the error of the route's function that refused the
// call, or nil. Under idempotency.WithShadow nothing is refused: it is reported as [event.Shadow].
func (g Guard) ReportRefused(ctx context.Context, scope string, code problem.Code, cause error) {
	g.hook.ReportRefused(ctx, g.route, scope, code, cause)
}

// ReportBypassed reports a call without a key that an adapter lets pass, as [event.Bypassed]. The cause
// says why the key may be missing although the client has sent one, and is logged; usually it is nil. Under
// idempotency.WithShadow the call is reported as [event.Shadow].
func (g Guard) ReportBypassed(ctx context.Context, cause error) {
	g.hook.ReportBypassed(ctx, g.route, cause)
}

// Settings returns the settings that an adapter applies itself, or refuses.
func (g Guard) Settings() Settings { return Settings(g.hook.Settings()) }

// Settings are the settings of a guard that Do does not apply.
type Settings struct {
	// KeyHeader is the canonical name of the field of idempotency.WithHeader.
	KeyHeader string
	// Unrecorded has the canonical names of idempotency.WithUnrecorded.
	Unrecorded []string
	// ClientCancel is the setting of idempotency.WithClientCancel.
	ClientCancel bool
	// NeedHTTP has the names of the options that are set and that only an HTTP request can have:
	// WithKeyFunc, WithAuthorizeReplay and WithExpiryHeader.
	NeedHTTP []string
}

// WithTraceContext sets a function that returns the span that a context belongs to. The guard
// calls it with the context of each request that claims a key, and keeps the span of each run
// in the record, where it is not sealed. So the event of a replay, in any process, can point to
// the trace of the run that made the answer. The function must be fast. Nil, the default, keeps
// no span. Under idempotency.WithShadow it is not called.
//
// Module otelidempotency sets it for OpenTelemetry, where trace.SpanContextFromContext returns the three
// fields.
func WithTraceContext(f func(context.Context) event.TraceContext) idempotency.Option {
	return traceContext(f)
}

type traceContext func(context.Context) event.TraceContext

func (f traceContext) Apply(o hook.Options) { o.TraceBy(f) }

// WithStoreCalls sets a function that is told of each call of the store when it has ended: which one, by the names
// of event.Event.Op, and how long it took. The context has the values of the request's, if a request made the call.
// The function must be fast, must not panic, and is called by several goroutines at once. Nil, the default, tells
// nobody. It counts for idempotency.New, whose store it is, and not for Guard.With. A memory store makes no calls that
// could take long, and none is told.
func WithStoreCalls(f func(ctx context.Context, op string, took time.Duration)) idempotency.Option {
	return storeCalls(f)
}

type storeCalls func(context.Context, string, time.Duration)

func (f storeCalls) Apply(o hook.Options) { o.TellCalls(f) }

// A Judged value says itself how its run has ended. An adapter needs it for a framework whose functions
// answer with a value that may also be a refusal. Do asks the value that its function returns without an
// error, in place of taking it for [event.Final], and records it if it is Final.
type Judged interface {
	// Outcome returns how the run has ended, unless the program has said so itself with
	// SetOutcome. [event.NotExecuted] becomes [event.Unknown] as for an answer of a handler: see
	// idempotency.DefaultOutcome. So does a value that is not an Outcome.
	Outcome() event.Outcome
	// Refused reports whether the value tells its caller that nothing was done. A run whose context
	// has ended may say so because it was told to stop: its outcome is Unknown.
	Refused() bool
}
