package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// This file is the shadow of a guard: it finds out what the guard would do, and does none of it.

// WithShadow leaves requests, handlers and functions of [Do] alone, and reports for each, as
// [event.Shadow], what the guard would have done. It is for the time before a guard goes live: it
// shows which clients repeat requests, and what would be replayed or refused. The default is
// false.
//
// The guard asks the store in the background, so a slow store delays nobody. It looks at 1,024
// requests at a time, and reports that it has passed over the others. Its records are not those
// of a live guard: they are in scopes of their own, hold a digest in place of the answer, and end
// with the TTL. So nothing of them counts when the option is taken away.
//
// A handler runs without an [Operation], and its request body is copied as it reads it, up to the
// limit of [WithMaxRequestBody]. If it does not read all of it, nothing is known of the request.
// The functions of the options are called as a live guard calls them, but those of [WithResolver],
// [WithAuthorizeReplay], [WithErrorWriter], [WithTraceContext] and [WithSealer] are not.
func WithShadow(on bool) Option {
	return optionFunc(func(s *settings) { s.shadow = on })
}

// maxShadows bounds the requests that are looked at at a time.
const maxShadows = 1024

var (
	errManyShadows = errors.New("idempotency: too many requests are being looked at already; is the store slow?")
	errUnreadBody  = errors.New("idempotency: the handler has not read the body of the request to its end")
)

// shadowScope begins the scopes of a shadow's records.
const shadowScope = "\x00shadow\x00"

// newShadow returns the guard that looks at what g leaves alone: with its settings, and with no
// function that talks to anybody but the report of the request.
func (g *Guard) newShadow() *Guard {
	set := g.set
	set.shadow, set.transaction, set.clientCancel, set.keptKeys = false, false, false, false
	set.retention = set.retentionOrDefault() // also of what is held
	set.sealer, set.resolver, set.authorizeReplay, set.traceContext = nil, nil, nil, nil
	set.errorWriter = writeProblem
	set.logger = slog.New(slog.DiscardHandler)
	set.observers = []func(context.Context, event.Event){noteShadow}
	return &Guard{core: g.core.shadow, set: set}
}

// A shadowReport is what the shadow's own events say of one request. They may come later than the
// report is made, from what goes on in the background.
type shadowReport struct {
	mu    sync.Mutex
	event event.Event // what would have been done
	err   error       // of the store
}

func (r *shadowReport) read() (event.Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.event, r.err
}

type shadowReportKey struct{}

func noteShadow(ctx context.Context, e event.Event) {
	report := ctx.Value(shadowReportKey{}).(*shadowReport)
	report.mu.Lock()
	defer report.mu.Unlock()
	switch e.Kind {
	case event.Run, event.Replay, event.Refused, event.Bypassed, event.Nested, event.FailOpen:
		report.event = e
	case event.StoreError:
		report.err = e.Err
	}
}

// A shadowAnswer stands for an answer in the record.
type shadowAnswer struct {
	Status int
	Size   int64
	Sum    []byte `json:",omitempty"`
}

// A shadow looks at one request, or one call of Do.
type shadow struct {
	guard  *Guard // whose shadow it is
	ctx    context.Context
	report shadowReport
	outer  *shadow // inside whose handler or function this one is
	id     Key     // what the store is asked about
	method string
	route  string
	scope  string
	code   problem.Code // of a refusal that comes before the store is asked
	err    error        // why not enough is known, or of a function of the route

	watched bool          // the store is being asked, in the background
	done    chan struct{} // closed when the rest is known
	answer  shadowAnswer
	outcome Outcome
}

// cast begins a shadow, unless there are too many.
func (g *Guard) cast(ctx context.Context, method, route string) *shadow {
	s := &shadow{guard: g, method: method, route: route, done: make(chan struct{})}
	s.outer, _ = ctx.Value(shadowKey{}).(*shadow)
	s.ctx = context.WithValue(context.WithoutCancel(ctx), shadowReportKey{}, &s.report)
	if g.core.shadows.Add(1) > maxShadows {
		s.err = errManyShadows
		s.tell(event.Event{}, nil)
		return nil
	}
	return s
}

type shadowKey struct{}

// inside returns a context for what the shadow stands beside.
func (s *shadow) inside(ctx context.Context) context.Context {
	return context.WithValue(ctx, shadowKey{}, s)
}

// isNested reports whether a run around this one would hold the key.
func (s *shadow) isNested(k Key) bool {
	for o := s.outer; o != nil; o = o.outer {
		if o.watched && o.guard.core == s.guard.core && o.id == k {
			return true
		}
	}
	return false
}

// watch asks the store, in the background, what becomes of the key, until the answer is known.
func (s *shadow) watch(k Key, payload []byte) {
	s.scope = k.Scope
	if s.isNested(k) {
		s.report.event = event.Event{Kind: event.Nested}
		return
	}
	s.watched, s.id = true, k
	go func() {
		k.Scope = shadowScope + k.Scope
		recorded, result, err := Do(s.ctx, s.guard.shadow, k, s.run, WithPayload(payload))
		<-s.done // before the answer is looked at
		e, storeErr := s.report.read()
		switch {
		case e.Kind == "":
			storeErr = cmp.Or(storeErr, err)
		case err == nil && result.Replayed:
			s.compare(recorded, &e)
		}
		s.tell(e, storeErr)
	}()
}

// run is what a live guard would run: it waits until the handler has.
func (s *shadow) run(ctx context.Context) (shadowAnswer, error) {
	select {
	case <-s.done:
	case <-ctx.Done():
		return shadowAnswer{}, context.Cause(ctx)
	}
	op, ok := FromContext(ctx)
	if ok {
		op.SetOutcome(s.outcome)
	}
	return s.answer, nil
}

// compare says what the replay would have been worth.
func (s *shadow) compare(recorded shadowAnswer, e *event.Event) {
	switch {
	case recorded.Size > s.guard.set.maxResponseLen:
		e.Kind, e.Code = event.Refused, problem.ResponseNotKept
	case recorded.Status != s.answer.Status || !bytes.Equal(recorded.Sum, s.answer.Sum):
		s.err = cmp.Or(s.err, ErrShadowDiffers)
	}
}

// end says how the handler or the function has ended.
func (s *shadow) end(answer shadowAnswer, outcome Outcome) {
	s.answer, s.outcome = answer, outcome
	if s.watched {
		close(s.done)
		return
	}
	e, _ := s.report.read()
	if s.code != "" {
		e = event.Event{Kind: event.Refused, Code: s.code}
	}
	s.tell(e, nil)
}

// tell reports what a live guard would have done, as its event e says.
func (s *shadow) tell(e event.Event, storeErr error) {
	e.Kind, e.Would = event.Shadow, e.Kind
	e.Scope, e.Method, e.Route, e.Status = s.scope, s.method, s.route, s.answer.Status
	e.OperationID, e.Differs = "", 0 // of the shadow's own record
	e.Err = cmp.Or(storeErr, s.err)
	s.guard.set.observe(s.ctx, e)
	s.guard.core.shadows.Add(-1)
}

// A shadowed is a handler whose guard looks on.
type shadowed struct {
	guard *Guard
	next  http.Handler
}

func (h *shadowed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g := h.guard
	if !g.set.protects(r.Method) {
		h.next.ServeHTTP(w, r)
		return
	}
	s := g.cast(r.Context(), r.Method, g.set.routeOf(r))
	if s == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	body := &shadowBody{shadow: s, request: r.Clone(s.ctx)}
	seen := r.WithContext(s.inside(r.Context()))
	keyless := g.set.keyFunc == nil && len(r.Header[g.set.header]) == 0
	if keyless || r.Body == nil || r.Body == http.NoBody || body.isComplete() {
		body.look()
	} else {
		body.ReadCloser, seen.Body = r.Body, body
	}
	tap := response.NewTap(w)
	returned := false
	defer func() {
		body.end()
		s.end(shadowAnswer{tap.Status(), tap.Size(), tap.Sum()}, s.judge(tap, returned))
		removeForm(seen, r)
	}()
	h.next.ServeHTTP(tap.Writer(), seen)
	returned = true
}

// judge returns the outcome of a handler.
func (s *shadow) judge(tap *response.Tap, returned bool) (outcome Outcome) {
	if !returned {
		return Unknown
	}
	if judged := Outcome(tap.Judged()); judged != 0 {
		return judged
	}
	outcome = Unknown
	defer s.recover()
	if set := &s.guard.set; tap.Status() == 0 && set.silence != 0 {
		outcome = set.silence
	} else {
		outcome = set.judge(tap.Status(), tap.Header())
	}
	return outcome
}

// recover, when deferred, keeps a panic of a function of the route from the request, which is to
// be left alone.
func (s *shadow) recover() {
	if p := recover(); p != nil {
		s.err = fmt.Errorf("idempotency: a function of the route panicked: %v\n%s", p, debug.Stack())
	}
}

// besideShadow calls a function of Do, and looks on.
func (g *Guard) besideShadow(ctx context.Context, k Key, payload []byte, call func(context.Context) *job) {
	s := g.cast(ctx, "", g.set.route)
	if s == nil {
		call(ctx)
		return
	}
	if err := k.check(); err != nil {
		s.err = err
	} else {
		s.watch(k, payload)
	}
	outcome := Unknown
	defer func() { s.end(shadowAnswer{}, outcome) }()
	j := call(s.inside(ctx))
	defer s.recover() // from a value that panics when it is judged
	if judged := j.judge(); judged == Final || judged == NotExecuted {
		outcome = judged
	}
}

// A shadowBody is the body of a request. It looks at the request as soon as it has been read.
type shadowBody struct {
	io.ReadCloser
	shadow  *shadow
	request *http.Request // as it came

	mu     sync.Mutex
	read   []byte
	looked bool
}

func (b *shadowBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looked {
		return n, err
	}
	room := b.shadow.guard.set.maxRequestBody + 1 - int64(len(b.read))
	b.read = append(b.read, p[:min(int64(n), room)]...)
	if errors.Is(err, io.EOF) || b.isComplete() {
		b.look()
	}
	return n, err
}

// isComplete reports whether no more needs to be read.
func (b *shadowBody) isComplete() bool {
	limit, have := b.shadow.guard.set.maxRequestBody, int64(len(b.read))
	return have > limit || b.request.ContentLength > limit || have == b.request.ContentLength
}

// look finds out what the request is, as a live guard does before it asks the store.
func (b *shadowBody) look() {
	b.looked = true
	s := b.shadow
	defer s.recover()
	r := b.request
	r.Body = http.NoBody
	if len(b.read) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(b.read))
	}
	var d decision
	body := requestBody{pool: &s.guard.core.bodies}
	defer body.drop()
	id, ok := s.guard.shadow.examine(r, &body, &d)
	b.read = nil
	s.scope = d.id.Scope
	switch {
	case ok:
		s.watch(d.id, id.fingerprint[:])
	case d.kind == refuse:
		s.code, s.err = d.problem.Code, d.cause
	}
}

// end is called when the handler has ended: what it reads now comes too late.
func (b *shadowBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.looked {
		b.looked, b.read = true, nil
		b.shadow.err = errUnreadBody
	}
}
