package idempotency

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A Guard makes handlers safe to retry. Make one with [New]; its zero value is not usable.
// It is immutable and safe for concurrent use, and serves any number of handlers.
type Guard struct {
	core   *core
	set    settings
	shadow *Guard // what looks on, under WithShadow
}

// A core is what a guard shares with all guards made from it by With: the store, and
// the work that outlives requests.
type core struct {
	store Store
	scope ScopeFunc
	// shared says that scope is SharedScope.
	shared bool

	// inline says that store calls return at once, or when their context ends. local says
	// that they return at once.
	local, inline bool

	versions  versionSet // of the fingerprints that functions of the program make
	bodies    sync.Pool  // of *bodyBuffer
	leases    sync.Pool  // of *lease
	renewers  sync.Pool  // of *renewer
	room      waitingRoom
	resolving resolving
	resolvers resolvers
	silences  silences
	reports   reports
	work      work
	late      work         // claims that are being given back
	running   atomic.Int64 // runs in flight
	unsettled unsettled
	pending   backlog // runs that wait to be settled
	ghosts    backlog // claims whose reply never came
	// back has a receiver for each ghost that waits for the store to answer again.
	back      chan struct{}
	abandoned atomic.Int64 // store calls that have outlived their callers
	// shadow is the core of guards that look on: what they wait for must not use the limits up.
	shadow  *core
	shadows atomic.Int64 // requests that are being looked at
}

func newCore(st Store, scope ScopeFunc, waitingBytes int64) *core {
	c := &core{store: st, scope: scope, shared: isSharedScope(scope), back: make(chan struct{})}
	switch s := st.(type) {
	case *MemoryStore:
		c.local, c.inline = true, true
	case store.ContextStore:
		c.inline = s.ObeysContext()
	}
	c.leases.New = func() any { return new(lease) }
	c.bodies.New = func() any { return new(bodyBuffer) }
	c.work.init()
	c.late.init()
	c.room.init(waitingBytes)
	return c
}

// New returns a guard that keeps its records in store and separates callers by scope.
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
	err = errors.Join(err, set.checkStore(st))
	if err != nil {
		return nil, err
	}
	c := newCore(st, scope, set.waitingBytes)
	c.shadow = newCore(st, scope, set.waitingBytes)
	return newGuard(c, set), nil
}

func newGuard(c *core, set settings) *Guard {
	g := &Guard{core: c, set: set}
	if set.shadow {
		g.shadow = g.newShadow()
	}
	c.resolvers.add(g)
	return g
}

// With returns a guard with the same store, scope and shutdown as g, and with the settings
// of g changed by opts. Use it to give a route its own TTL or recovery policy. With panics on
// an invalid option, as http.ServeMux.Handle does on an invalid pattern: the programmer sets
// up routes at start.
//
// Guards made with With share one set of keys. A key that was used on one route is a
// mismatch on another, because the path is part of the fingerprint.
func (g *Guard) With(opts ...Option) *Guard {
	set, err := g.set.with(opts)
	if set.waitingBytes != g.set.waitingBytes {
		err = errors.Join(err, errWaitingBytes)
	}
	if err = errors.Join(err, set.checkStore(g.core.store)); err != nil {
		panic(err)
	}
	return newGuard(g.core, set)
}

// Handler returns a handler that protects next. Requests whose method is not protected,
// and those without a key where none is required, go to next untouched.
//
// The request's body ends with next, as net/http demands: what reads it after next has returned gets
// [http.ErrBodyReadAfterClose].
//
// A route needs one guard. Where next contains another guard on the same store, a request
// whose scope and key are the same for both passes through the inner one, because it is
// protected already, whatever its path and payload. That is reported as [event.Nested].
//
// A handler of gin that calls the returned handler, other than gin.WrapH and gin.WrapF, has its
// requests with a key refused with 503 before anything runs, because gin would call the next handler
// behind each refusal. The refusal ends with a panic of [http.ErrAbortHandler]. Module
// ginidempotency is for gin.
func (g *Guard) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("idempotency: Handler: nil handler")
	}
	if g.shadow != nil {
		return &shadowed{g, next}
	}
	if err := misplaced(next); err != nil {
		return &refusing{g, next, err}
	}
	return &guarded{guard: g, next: next}
}

type guarded struct {
	guard  *Guard
	next   http.Handler
	placed atomic.Bool // where gin does not go on behind it; see inChain
}

// ServeHTTP decides what a request gets, then acts on it.
func (h *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := h.guard
	if !g.set.protects(r.Method) {
		h.next.ServeHTTP(w, r)
		return
	}
	if h.inChain(w) && g.set.wantsKey(r) {
		h.refuseInChain(w, r)
		return
	}
	var d decision
	defer d.leave(g.core)
	g.decide(r, &d)
	if d.echo != "" {
		w.Header()[g.set.header] = response.Value(d.echo)
	}
	switch d.kind {
	case pass:
		h.next.ServeHTTP(w, r)
	case passRead:
		servePutBack(r.Context(), w, r, h.next, d.body)
	case failOpen:
		servePutBack(unprotectedContext{r.Context(), g.set.intent(d.id, d.lease.claim.Fingerprint)}, w, r, h.next, d.body)
	case execute:
		g.runHandler(w, r, h.next, &d)
	default:
		g.respond(w, r, &d)
	}
}

// respond acts on a decision that needs no handler: it replays or refuses.
func (g *Guard) respond(w http.ResponseWriter, r *http.Request, d *decision) {
	if d.kind == replay {
		g.sendReplay(w, d)
		return
	}
	g.refuse(w, r, d)
}

// servePutBack runs a handler without a claim, with a copy of r that has the body, which
// has been read, and the given context.
func servePutBack(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler, body requestBody) {
	clone := r.WithContext(ctx)
	reader := new(bodyReader)
	putBack(clone, reader, body)
	defer reader.end()
	defer removeForm(clone, r)
	next.ServeHTTP(w, clone)
}

// The rest is for adapters, which call [Do] for the handlers of a framework and decide a part
// themselves.

// OnlyLooks reports whether the guard has [WithShadow]. An adapter asks before it refuses a call
// itself.
func (g *Guard) OnlyLooks() bool { return g.shadow != nil }

// PassesNested reports whether ctx belongs to a run that holds the key already, and if so reports
// it as [event.Nested]. An adapter then calls the handler without [Do], as [Guard.Handler] does.
func (g *Guard) PassesNested(ctx context.Context, k Key) bool {
	op, ok := FromContext(ctx)
	if !ok {
		return false
	}
	key := k.storeKey()
	if !g.core.holds(op, key) {
		return false
	}
	g.set.observe(ctx, event.Event{Kind: event.Nested, Record: key, Scope: k.Scope, OperationID: op.intent().id(), Route: g.set.route})
	return true
}

// ReportRefused reports a call that an adapter has refused before it came to [Do], as
// [event.Refused]. The scope is empty if it is not known, and cause is the error of the route's
// function that refused the call, or nil. Under [WithShadow] nothing is refused: it is reported as
// [event.Shadow].
func (g *Guard) ReportRefused(ctx context.Context, scope string, code problem.Code, cause error) {
	e := event.Event{Kind: event.Refused, Scope: scope, Route: g.set.route, Code: code, Err: cause}
	if g.shadow != nil {
		e.Kind, e.Would = event.Shadow, event.Refused
	}
	g.set.observe(ctx, e)
	if e.Kind == event.Refused && cause != nil {
		g.set.logEvent(ctx, e) // nobody else has the error
	}
}

// ReportBypassed reports a call without a key that an adapter lets pass, as [event.Bypassed]. Under
// [WithShadow] it is reported as [event.Shadow].
func (g *Guard) ReportBypassed(ctx context.Context) {
	e := event.Event{Kind: event.Bypassed, Route: g.set.route}
	if g.shadow != nil {
		e.Kind, e.Would = event.Shadow, event.Bypassed
	}
	g.set.observe(ctx, e)
}

// AdapterSettings are the settings of a guard that [Do] does not apply.
type AdapterSettings struct {
	// Unrecorded has the canonical names of [WithUnrecorded].
	Unrecorded []string
	// ClientCancel is the setting of [WithClientCancel].
	ClientCancel bool
	// NeedHTTP has the names of the options that are set and that only an HTTP request can have:
	// WithKeyFunc, WithAuthorizeReplay, WithExpiryHeader and WithExplain.
	NeedHTTP []string
}

// ForAdapter returns the settings that an adapter applies itself, or refuses.
func (g *Guard) ForAdapter() AdapterSettings {
	s := &g.set
	a := AdapterSettings{Unrecorded: slices.Clone(s.dropped), ClientCancel: s.clientCancel}
	for _, option := range []struct {
		name string
		set  bool
	}{
		{"WithKeyFunc", s.keyFunc != nil},
		{"WithAuthorizeReplay", s.authorizeReplay != nil},
		{"WithExpiryHeader", s.expiryHeader != ""},
		{"WithExplain", s.explain},
	} {
		if option.set {
			a.NeedHTTP = append(a.NeedHTTP, option.name)
		}
	}
	return a
}
