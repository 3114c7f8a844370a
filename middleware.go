package idempotency

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/frameworks"
	"example.com/idempotency/internal/hook"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// A Guard makes handlers safe to retry. Make one with [New]; its zero value is not usable.
// It is immutable and safe for concurrent use, and serves any number of handlers.
type Guard struct {
	route  *route
	shadow *route // what looks on, under WithShadow
}

// New returns a guard that keeps its records in st and separates callers by scope.
// Both are required: a guard without a scope would let one tenant read another's
// answers. To share one namespace on purpose, pass [SharedScope].
//
// The error reports all mistakes in the options at once, joined.
func New(st Store, scope ScopeFunc, opts ...Option) (*Guard, error) {
	set, err := defaultSettings().with(opts)
	if st == nil {
		err = errors.Join(errors.New("idempotency: New: nil store"), err)
	}
	if scope == nil {
		err = errors.Join(errors.New("idempotency: New: nil scope; use SharedScope to share one namespace"), err)
	}
	if err = errors.Join(err, set.checkStore(st)); err != nil {
		return nil, err
	}
	return newGuard(newRoute(st, scope, set)), nil
}

func newGuard(rt *route) *Guard {
	g := &Guard{route: rt}
	if rt.set.looksOn {
		g.shadow = rt.castShadow()
	}
	return g
}

// With returns a guard with the same store, scope and shutdown as g, and with the settings
// of g changed by opts. Use it to give a route its own TTL or recovery policy. With panics on
// an invalid option, as http.ServeMux.Handle does on an invalid pattern: the programmer sets
// up routes at start.
//
// The guard of a route takes the place of that of a group: inside of it, it refuses requests with a key, as
// [Guard.Handler] says.
//
// Guards made with With share one set of keys. A key that was used on one route is a
// mismatch on another, because the path is part of the fingerprint.
func (g *Guard) With(opts ...Option) *Guard {
	set, err := g.route.set.with(opts)
	if set.waitingBytes != g.route.set.waitingBytes {
		err = errors.Join(err, errWaitingBytes)
	}
	if err = errors.Join(err, set.checkStore(g.route.engine.Store())); err != nil {
		panic(err)
	}
	return newGuard(g.route.with(set))
}

// Handler returns a handler that protects next. Requests whose method is not protected,
// and those without a key where none is required, go to next untouched.
//
// The request's body ends with next, as net/http demands: what reads it after next has returned gets
// [http.ErrBodyReadAfterClose].
//
// A route needs one guard. Where next contains another guard on the same store, a request
// whose scope and key are the same for both passes through the inner one, because it is
// protected already, whatever its path and payload. That is reported as [event.Nested]. If the inner guard has
// settings that would be lost, such as another recovery policy or TTL, it refuses the request instead, and the log
// names them. The client gets what a run of unknown outcome gets, because the outer handler may have had an effect
// before: 503 [problem.NoAnswer], or 409 [problem.OutcomeUnknown] if the key is held.
//
// Where a framework would answer past the guard, or go on behind it, the returned handler refuses requests
// with a key with 500 [problem.Misplaced] before anything runs, and the log names the module to use. Such
// places are handlers and middleware of gin and echo, other than gin.WrapH, gin.WrapF and echo.WrapHandler,
// and the adaptor of fasthttp, which fiber's is. In a chain of gin, the refusal ends with a panic of
// [http.ErrAbortHandler], because gin would call the next handler.
func (g *Guard) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("idempotency: Handler: nil handler")
	}
	spot := frameworks.Around()
	if g.shadow != nil {
		return &shadowed{g.route, next, spot, g.shadow}
	}
	return &guarded{g.route, next, spot}
}

type guarded struct {
	route *route
	next  http.Handler
	spot  *frameworks.Spot
}

// ServeHTTP keeps what is not for the guard away from all the rest.
func (h *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch set := h.route.set; {
	case set.wantsKey(r):
		h.protect(w, r)
		return
	case set.protects(r.Method):
		h.route.reportBypass(r)
	}
	h.next.ServeHTTP(w, r)
}

// protect decides what a request gets, then acts on it.
func (h *guarded) protect(w http.ResponseWriter, r *http.Request) {
	rt := h.route
	place := h.spot.Place(w)
	if place.Err != nil {
		h.refuseMisplaced(w, r, place)
		return
	}
	var d decision
	defer d.leave(rt)
	rt.decide(r, &d)
	if d.echo != "" {
		w.Header()[rt.set.header] = response.Value(d.echo)
	}
	switch d.kind {
	case pass:
		h.next.ServeHTTP(w, r)
	case passRead:
		servePutBack(r.Context(), w, r, h.next, d.body)
	case failOpen:
		ctx := rt.engine.Unprotected(r.Context(), d.id, d.lease.Fingerprint())
		tap := response.Keep(w, rt.set.header, rt.set.expiryHeader, response.ReplayedHeader)
		defer tap.KeepFields()
		servePutBack(ctx, tap.Writer(), r, h.next, d.body)
	case execute:
		rt.runHandler(w, r, h.next, &d, place.Late)
	default:
		rt.respond(w, r, &d)
	}
}

// refuseMisplaced refuses a request that the guard would have to protect and cannot. Where the framework
// would go on all the same, the request ends as net/http provides: with http.ErrAbortHandler, which
// gin.Recovery takes for the end of the chain.
func (h *guarded) refuseMisplaced(w http.ResponseWriter, r *http.Request, p *frameworks.Place) {
	d := decision{cause: p.Err}
	d.refuse(problem.Misplaced)
	h.route.refuse(w, r, &d)
	if p.GoesOn {
		_ = http.NewResponseController(w).Flush() // where nobody recovers, the connection ends here
		panic(http.ErrAbortHandler)
	}
}

// Hook is for package adapter, which says what authors of adapters can do with a guard.
func (g *Guard) Hook() hook.Guard { return hooked{g} }

// A hooked is a guard as package adapter sees it.
type hooked struct{ guard *Guard }

func (h hooked) Engine() *engine.Engine { return h.guard.route.engine }

func (h hooked) OnlyLooks() bool { return h.guard.shadow != nil }

func (h hooked) Passes(method string, keyed bool) (passes, heard bool) {
	set := h.guard.route.set
	protected := set.protects(method)
	passes = !protected || !keyed && !set.wantsKeyless()
	return passes, passes && protected && set.rules.Reporter.Heard()
}

func (h hooked) ReportPassed(ctx context.Context, method, route string) {
	h.report(ctx, event.Event{Kind: event.Bypassed, Method: method, Route: route})
}

func (h hooked) PassesNested(ctx context.Context, route, scope, key string) (bool, error) {
	return h.guard.route.passesNested(ctx, intent.Key{Scope: scope, Value: key}, "", cmp.Or(route, h.guard.route.set.rules.Route))
}

func (h hooked) ReportRefused(ctx context.Context, route, scope string, code problem.Code, cause error) {
	h.report(ctx, event.Event{Kind: event.Refused, Route: route, Scope: scope, Code: code, Err: cause})
}

func (h hooked) ReportBypassed(ctx context.Context, route string, cause error) {
	h.report(ctx, event.Event{Kind: event.Bypassed, Route: route, Err: cause})
}

func (h hooked) report(ctx context.Context, e event.Event) {
	r := &h.guard.route.set.rules
	e.Route = cmp.Or(e.Route, r.Route)
	if h.OnlyLooks() {
		e.Kind, e.Would = event.Shadow, e.Kind
	}
	r.Reporter.Observe(ctx, e)
	if e.Kind == event.Refused && e.Err != nil {
		r.Reporter.Log(ctx, e) // nobody else has the error
	}
}

func (h hooked) Settings() hook.Settings {
	s := h.guard.route.set
	a := hook.Settings{KeyHeader: s.header, Unrecorded: slices.Clone(s.unrecorded), ClientCancel: s.rules.ClientCancel}
	need := func(option string, isSet bool) {
		if isSet {
			a.NeedHTTP = append(a.NeedHTTP, option)
		}
	}
	need("WithKeyFunc", s.keyFunc != nil)
	need("WithReference", s.reference != nil)
	need("WithAuthorizeReplay", s.authorizeReplay != nil)
	need("WithExpiryHeader", s.expiryHeader != "")
	return a
}

// decide finds out what a request gets.
func (rt *route) decide(r *http.Request, d *decision) {
	body := requestBody{pool: &rt.bodies}
	defer body.drop()
	id, ok := rt.examine(r, &body, d)
	if !ok {
		return
	}
	if d.admitted = rt.engine.Admit(); !d.admitted {
		d.refuse(problem.ShuttingDown)
		return
	}
	rt.claim(r, &body, id, d)
}
