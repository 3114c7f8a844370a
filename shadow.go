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
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/internal/engine/seal"
	"example.com/idempotency/internal/frameworks"
	"example.com/idempotency/internal/reread"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// This file is the shadow of a guard: it finds out what the guard would do, and does none of it.

// maxShadows bounds the requests that are looked at at a time.
const maxShadows = 1024

var (
	errManyShadows = errors.New("idempotency: too many requests are being looked at already; is the store slow?")
	errUnreadBody  = errors.New("idempotency: the handler has not read the body of the request to its end")
)

// shadowScope begins the scopes of a shadow's records.
const shadowScope = "\x00shadow\x00"

// castShadow returns the route that looks at what rt leaves alone: with its settings, and with no
// function that talks to anybody but the report of the request.
func (rt *route) castShadow() *route {
	set := *rt.set
	set.looksOn = false
	r := &set.rules
	r.Transaction, r.ClientCancel, r.FindableScope = false, false, false
	r.Retention = r.RetentionInTime() // also of what is held
	r.Seals, r.Resolver, r.Trace, set.authorizeReplay = seal.Seals{}, nil, nil, nil
	r.Reporter = report.Reporter{
		Logger: slog.New(slog.DiscardHandler), Observers: []func(context.Context, event.Event){noteShadow},
	}
	set.errorWriter, set.reference = writeProblem, nil
	return rt.beside.with(&set)
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
	live   *route // whose shadow it is
	looks  *route // with which it looks
	ctx    context.Context
	report shadowReport
	outer  *shadow    // inside whose handler or function this one is
	id     intent.Key // what the store is asked about
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
func cast(ctx context.Context, live, looks *route, method, route string) *shadow {
	s := &shadow{live: live, looks: looks, method: method, route: route, done: make(chan struct{})}
	s.outer, _ = ctx.Value(shadowKey{}).(*shadow)
	s.ctx = context.WithValue(context.WithoutCancel(ctx), shadowReportKey{}, &s.report)
	if live.shadows.Add(1) > maxShadows {
		s.err = errManyShadows
		s.tell(event.Event{}, nil)
		return nil
	}
	return s
}

// shadowKey is that of the shadow in the context of what it stands beside.
type shadowKey struct{}

// within returns the shadow around this one whose run would hold the key, or nil.
func (s *shadow) within(k intent.Key) *shadow {
	for o := s.outer; ; o = o.outer {
		if o == nil || o.watched && o.live.common == s.live.common && o.id == k {
			return o
		}
	}
}

// watch asks the store, in the background, what becomes of the key, until the answer is known.
func (s *shadow) watch(k intent.Key, payload []byte) {
	s.scope = k.Scope
	if o := s.within(k); o != nil {
		s.report.event = event.Event{Kind: event.Nested}
		if s.err = s.live.set.within(o.live.set); s.err != nil {
			s.code = problem.Misplaced
		}
		return
	}
	s.watched, s.id = true, k
	go func() {
		k.Scope = shadowScope + k.Scope
		var recorded shadowAnswer
		result, err := s.looks.engine.Do(s.ctx, engine.Job{Key: k, Payload: payload, Fn: s.run}, &recorded)
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
func (s *shadow) run(ctx context.Context) (any, error) {
	select {
	case <-s.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if op, ok := engine.FromContext(ctx); ok {
		op.SetOutcome(s.outcome)
	}
	return s.answer, nil
}

// compare says what the replay would have been worth.
func (s *shadow) compare(recorded shadowAnswer, e *event.Event) {
	switch {
	case recorded.Size > s.live.set.rules.MaxAnswer:
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
	s.live.set.rules.Reporter.Observe(s.ctx, e)
	s.live.shadows.Add(-1)
}

// A shadowed is a handler whose guard looks on.
type shadowed struct {
	route *route
	next  http.Handler
	spot  *frameworks.Spot
	looks *route
}

func (h *shadowed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt := h.route
	var s *shadow
	if rt.set.protects(r.Method) {
		s = cast(r.Context(), rt, h.looks, r.Method, rt.set.routeOf(r))
	}
	if s == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	body := &shadowBody{shadow: s, request: r.Clone(s.ctx)}
	seen := r.WithContext(context.WithValue(r.Context(), shadowKey{}, s))
	switch {
	case rt.set.wantsKey(r) && h.spot.Place(w).Err != nil:
		s.code, s.err, body.looked = problem.Misplaced, h.spot.Place(w).Err, true
	case rt.set.keyFunc == nil && len(rt.set.keyFields(r.Header)) == 0, r.Body == nil, r.Body == http.NoBody, body.isComplete():
		body.look()
	default:
		body.ReadCloser, seen.Body = r.Body, body
	}
	tap, returned := response.NewTap(w), false
	defer func() {
		body.end()
		s.end(shadowAnswer{tap.Status(), tap.Size(), tap.Sum()}, s.judge(tap, returned))
		reread.RemoveForm(seen, r)
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
	if silence := s.live.set.silence; tap.Status() == 0 && silence != 0 {
		return silence
	}
	return s.live.set.judge(tap.Status(), tap.Header())
}

// recover, when deferred, keeps a panic of a function of the route from the request, which is to
// be left alone.
func (s *shadow) recover() {
	if p := recover(); p != nil {
		s.err = fmt.Errorf("idempotency: a function of the route panicked: %v\n%s", p, debug.Stack())
	}
}

// besideShadow calls a function of Do, and looks on.
func besideShadow(ctx context.Context, live, looks *route, k intent.Key, payload []byte, call func(context.Context) (any, error)) {
	s := cast(ctx, live, looks, "", live.set.rules.Route)
	if s == nil {
		_, _ = call(ctx)
		return
	}
	if s.err = k.CheckRun(); s.err == nil {
		s.watch(k, payload)
	}
	outcome := Unknown
	defer func() { s.end(shadowAnswer{}, outcome) }()
	value, err := call(context.WithValue(ctx, shadowKey{}, s))
	defer s.recover() // from a value that panics when it is judged
	if judged := engine.JudgeValue(value, err); judged == Final || judged == NotExecuted {
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
	room := b.shadow.live.set.maxRequestBody + 1 - int64(len(b.read))
	b.read = append(b.read, p[:min(int64(n), room)]...)
	if errors.Is(err, io.EOF) || b.isComplete() {
		b.look()
	}
	return n, err
}

// isComplete reports whether no more needs to be read.
func (b *shadowBody) isComplete() bool {
	limit, have := b.shadow.live.set.maxRequestBody, int64(len(b.read))
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
	body := requestBody{pool: &s.looks.bodies}
	defer body.drop()
	id, ok := s.looks.examine(r, &body, &d)
	b.read = nil
	s.scope = d.id.Scope
	switch {
	case ok:
		s.watch(d.id, id.Fingerprint[:])
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
