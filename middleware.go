package idempotency

import (
	"context"
	"errors"
	"net/http"

	"example.com/idempotency/problem"
)

// A Guard makes handlers safe to retry. It is made by [New], is immutable and safe for
// concurrent use, and serves any number of handlers. Its zero value is not usable.
type Guard struct {
	core *core
	set  settings
}

// New returns a guard that keeps its records in store and separates callers by scope.
// Both are required: a guard without a scope would let one tenant read another's
// answers, so that sharing one namespace has to be chosen, with [SharedScope].
//
// All mistakes in the options are reported at once, joined.
func New(store Store, scope ScopeFunc, opts ...Option) (*Guard, error) {
	set, err := defaultSettings().with(opts)
	if store == nil {
		err = errors.Join(errors.New("idempotency: New: nil store"), err)
	}
	if scope == nil {
		err = errors.Join(errors.New("idempotency: New: nil scope; use SharedScope to share one namespace"), err)
	}
	err = errors.Join(err, set.checkStore(store))
	if err != nil {
		return nil, err
	}
	return &Guard{core: newCore(store, scope), set: set}, nil
}

// With returns a guard with the same store and scope and the same shutdown, whose
// other settings are those of g changed by opts: the way to give a route its own TTL
// or recovery policy. It panics on an invalid option, as http.ServeMux.Handle does on
// an invalid pattern: routes are set up at start, by the programmer.
//
// Guards made with With share one set of keys. A key that was used on one route is a
// mismatch on another, because the path is part of the fingerprint.
func (g *Guard) With(opts ...Option) *Guard {
	set, err := g.set.with(opts)
	if err = errors.Join(err, set.checkStore(g.core.store)); err != nil {
		panic(err)
	}
	return &Guard{core: g.core, set: set}
}

// Shutdown ends the guard, and all guards made from it by [Guard.With]. From its call
// on, requests with a key are refused with 503 and those that wait for another's
// answer get 409. It returns when the runs in flight have ended and are settled, or
// when ctx ends: then it gives up what the store has failed to settle, reports each run as
// [EventRecordingLost], and returns the context's error.
//
// Call it beside http.Server.Shutdown, before the store's connection is closed. It may
// be called more than once.
func (g *Guard) Shutdown(ctx context.Context) error {
	err := g.core.work.shutdown(ctx)
	if err != nil {
		g.core.unsettled.giveUp(ErrShutdown)
	}
	return err
}

// Handler returns a handler that protects next. Requests whose method is not protected,
// and those without a key where none is required, go to next untouched.
//
// A route has one guard. Where next contains g again, or a guard that [Guard.With] made
// from it, a request with a key panics: it would meet its own run in flight.
func (g *Guard) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("idempotency: Handler: nil handler")
	}
	return &guarded{g, next}
}

type guarded struct {
	guard *Guard
	next  http.Handler
}

// ServeHTTP decides whether the guard has anything to do with a request.
func (h *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := h.guard
	if !g.set.protects(r.Method) {
		h.next.ServeHTTP(w, r)
		return
	}
	var in intake
	if g.set.keyFunc == nil {
		key, present, err := requestKey(r.Header, g.set.header, g.set.strictKeys)
		switch {
		case err != nil:
			p := problem.New(problem.KeyInvalid)
			p.Detail = err.Error()
			g.reject(w, r, "", p)
			return
		case !present && g.set.required:
			g.reject(w, r, "", problem.New(problem.KeyMissing))
			return
		case !present:
			h.next.ServeHTTP(w, r)
			return
		}
		in.key = key
		values := r.Header[g.set.header]
		w.Header()[g.set.header] = values[:1:1]
	}
	g.serve(w, r, h.next, &in)
}

// serve answers a request with a key: by a run, by a replay or by a problem.
func (g *Guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler, in *intake) {
	if err := g.take(r, in); err != nil {
		var e *refusal
		if errors.As(err, &e) {
			g.reject(w, r, "", e.problem)
			return
		}
		serveUnguarded(w, r, next, g.core.giveBody(in)) // errNoKey
		return
	}
	if !g.core.work.admit() {
		g.reject(w, r, "", problem.New(problem.ShuttingDown))
		return
	}
	defer g.core.work.leave()

	l := new(lease)
	l.init(r.Context(), g, Key{in.scope, in.key}, in.fingerprint)
	if op, ok := FromContext(r.Context()); ok && op.lease.core == g.core && op.lease.key == l.key {
		// The 409 that it would get from itself would be recorded as the handler's answer.
		panic("idempotency: Handler: a guard inside a guard; give a route one guard, made with With for its own settings")
	}
	rec, err := g.admit(r.Context(), l, func(recorded Fingerprint) (Fingerprint, bool) {
		return g.formerFingerprint(r, in.body, recorded)
	})
	switch {
	case err != nil:
		g.serveWithoutStore(w, r, next, in, l, err)
	case rec.Mine && g.set.clientCancel && r.Context().Err() != nil:
		// What a handler makes of a client that has gone already must not hold the key.
		_, _ = l.settle(verdict{outcome: NotExecuted})
		g.reject(w, r, l.key, problem.New(problem.InFlight))
	case rec.Mine:
		u := &run{guard: g, lease: l}
		u.op.lease = l
		u.serve(w, r, next, g.core.giveBody(in))
	default:
		g.core.dropBody(in)
		g.serveRecord(w, r, l, rec)
	}
}

// admit claims the key, and waits for another's answer if the settings say so. client is
// whom the answer is for; former, if there is one, looks for a function that a record's
// other fingerprint was made with.
func (g *Guard) admit(client context.Context, l *lease, former func(Fingerprint) (Fingerprint, bool)) (rec Record, err error) {
	defer func() { // also if a function of the program panics or calls runtime.Goexit
		if l.uncertain && !rec.Mine {
			l.abandon()
		}
	}()
	rec, err = l.acquire(false)
	l.met = err == nil && !rec.Mine
	if err == nil && rec.Fingerprint != l.claim.Fingerprint && former != nil {
		if fp, ok := former(rec.Fingerprint); ok {
			l.claim.Fingerprint = fp
			rec, err = l.acquire(false)
		}
	}
	if err == nil && g.set.wait > 0 && l.inFlight(rec) {
		rec, err = l.await(client, rec)
	}
	if err == nil && g.set.resolver != nil && rec.State == StateHeld && rec.Fingerprint == l.claim.Fingerprint &&
		g.resolveHeld(client, l) {
		rec, err = l.acquire(false)
	}
	return rec, err
}

// formerFingerprint looks for the function that a record's fingerprint was made with:
// after a deployment that changed the function, retries of earlier requests are still
// compared with their own.
func (g *Guard) formerFingerprint(r *http.Request, body []byte, recorded Fingerprint) (Fingerprint, bool) {
	for _, f := range g.set.formerFingerprints {
		if fp, err := f(r, body); err == nil && fp == recorded {
			return fp, true
		}
	}
	f := fingerprintOf(recorded[0])
	if f == nil {
		return Fingerprint{}, false
	}
	fp, err := f(r, body)
	return fp, err == nil && fp == recorded
}

// serveWithoutStore answers when the store could not say whether the handler may run.
func (g *Guard) serveWithoutStore(w http.ResponseWriter, r *http.Request, next http.Handler, in *intake, l *lease, err error) {
	switch {
	case errors.Is(err, ErrCorrupt):
		l.observe(Event{Kind: EventCorrupt, Err: err})
		g.reject(w, r, l.key, problem.New(problem.AnswerUnreadable))
	case g.set.failOpen && !l.met:
		l.observe(Event{Kind: EventFailOpen, Method: r.Method, Pattern: r.Pattern, Err: err})
		serveUnguarded(w, r.WithContext(unprotectedContext{r.Context()}), next, g.core.giveBody(in))
	default:
		g.reject(w, r, l.key, problem.New(problem.StoreUnavailable))
	}
}

// reject answers with a problem and reports it.
func (g *Guard) reject(w http.ResponseWriter, r *http.Request, storeKey string, p problem.Document) {
	if len(g.set.observers) > 0 {
		g.set.observe(r.Context(), Event{
			Kind: EventRefused, KeyHash: keyHash(storeKey), Method: r.Method, Pattern: r.Pattern,
			Status: p.Status, Code: p.Code,
		})
	}
	g.refuse(w, r, p)
}

// serveUnguarded runs a handler without a claim, with a copy of r whose body, which has
// been read, can be read again.
func serveUnguarded(w http.ResponseWriter, r *http.Request, next http.Handler, body []byte) {
	clone := r.WithContext(r.Context())
	setBody(clone, new(bodyReader), body)
	defer removeForm(clone, r)
	next.ServeHTTP(w, clone)
}

// removeForm deletes the temporary files of a form that was parsed on a copy of r:
// net/http cleans up after its own request only.
func removeForm(clone, r *http.Request) {
	if form := clone.MultipartForm; form != nil && r.MultipartForm == nil {
		_ = form.RemoveAll()
	}
}

func setBody(r *http.Request, reader *bodyReader, body []byte) {
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	r.Body = http.NoBody
	if len(body) > 0 {
		reader.Reset(body)
		r.Body = reader
	}
}
