package idempotency

import (
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/response"
	"example.com/idempotency/problem"
)

// A handlerRun is the run of an http.Handler. All its parts are one allocation.
type handlerRun struct {
	run
	next     http.Handler
	original *http.Request
	req      http.Request // the handler's copy
	body     bodyReader
	rec      response.Recorder
	waited   time.Duration // for another run, before this one

	// Set by close, if the handler has returned.
	recorded answer.Answer
	// cutShort says that the handler was told to stop and answered nothing.
	cutShort bool
	// past says that it has answered past the guard.
	past bool
}

// runHandler runs the handler under the claim that was decided on, and answers.
func (g *Guard) runHandler(w http.ResponseWriter, r *http.Request, next http.Handler, d *decision) {
	h := &handlerRun{next: next, original: r, waited: d.waited}
	h.init(r.Context(), g, d.lease, g.set.clientCancel)
	h.req = *r.WithContext(&h.ctx)
	putBack(&h.req, &h.body, d.body)
	h.op.writer = &h.rec
	h.rec.Init(w, r.Method, response.Settings{Echo: g.set.header, Limit: g.set.maxResponseLen, Judged: g.set.outcomeChosen, Drop: g.set.drop}, h)
	defer h.rec.DropBuffer()
	v, e := h.perform(h)
	h.respond(w, v, e)
}

func (h *handlerRun) execute(*runContext) { h.next.ServeHTTP(&h.rec, &h.req) }

func (h *handlerRun) close(returned bool) {
	h.body.end()
	removeForm(&h.req, h.original)
	h.rec.Close(returned)
	if returned {
		h.recorded = h.rec.Answer()
		h.cutShort = h.rec.Silent() && h.ctx.toldToStop()
	}
}

// answer returns the handler's answer. If a handler says that a run counts whose body is
// shorter than it declared, only that is recorded: half an answer must not be replayed as a
// whole one. Of an answer that went past the guard nothing is known.
func (h *handlerRun) answer() (*answer.Answer, error) {
	switch {
	case h.past:
		a := answer.NotKept(0, nil, h.guard.set.maxResponseLen)
		return &a, nil
	case h.rec.Short():
		a := h.rec.NotKept()
		return &a, nil
	}
	return &h.recorded, nil
}

func (h *handlerRun) overLimit() bool { return h.rec.OverLimit() }

func (h *handlerRun) report(e event.Event) event.Event {
	e.Status, e.Size, e.Waited = h.rec.Status(), int64(len(h.recorded.Body)), h.waited
	return e
}

// respond lets the answer out, after the run was settled.
func (h *handlerRun) respond(w http.ResponseWriter, v verdict, e ending) {
	d := decision{id: h.lease.id, key: h.lease.key, lease: h.lease}
	defer d.leave(h.guard.core)
	switch {
	case e.fate == overtaken && !h.rec.Sent():
		// What another run has recorded counts. Nobody else would ever see our answer.
		rec := e.record()
		h.guard.answerFrom(&rec, h.original, &d)
		switch d.problem.Code { // the client is not told that this request was not run
		case problem.StoreUnavailable, problem.TryLater, problem.KeyReused:
			d.refuse(problem.InFlight)
		}
		h.guard.respond(w, h.original, &d)
	case v.instead != "":
		d.refuse(v.instead)
		d.cause = v.cause
		if v.instead == problem.ResponseNotKept {
			d.problem.OriginalStatus = h.rec.Status()
		}
		h.guard.respond(w, h.original, &d)
	case h.guard.set.transaction && v.outcome == NotExecuted && (h.cutShort || h.refusesStopped && h.deniesEffect() && !h.rec.Sent()):
		d.refuse(problem.RolledBack)
		h.guard.respond(w, h.original, &d)
	case h.cutShort && v.outcome != Final:
		// The empty 200 that net/http makes of silence would be a lie.
		d.refuse(problem.NoAnswer)
		if v.lasting() {
			d.refuse(problem.OutcomeUnknown)
		}
		h.guard.respond(w, h.original, &d)
	case h.correction(v) != "" && !h.rec.Sent():
		d.refuse(h.correction(v))
		h.guard.respond(w, h.original, &d)
	case v.release.Unbind && e.fate == pending && !h.rec.Sent():
		// The client would come back with another request, and meet the record of this one.
		d.refuse(problem.StoreUnavailable)
		h.guard.respond(w, h.original, &d)
	case h.past, h.rec.Silent() && v.outcome != Final:
		// Somebody else may have answered, or be about to.
		h.rec.Yield()
	default:
		if g := h.guard; v.outcome == Final && e.fate == settled && g.set.tellsExpiry(g.set.ttl) {
			h.rec.Tell(g.set.expiryField(g.set.ttl))
		}
		h.rec.Respond()
	}
}

// correction returns what the client of an [Unknown] run is told instead of the handler's
// answer, and nothing where that answer may be shown. A client takes a plain 4xx for the word
// that nothing was done, and the refusal of a guard behind this one for this guard's own.
// Neither may deny an effect that may have happened here, or invite a retry while the key is
// held.
func (h *handlerRun) correction(v verdict) problem.Code {
	if v.outcome != Unknown {
		return ""
	}
	code := problem.Code(h.rec.Get(problem.Header))
	if code == "" && !h.deniesEffect() {
		return ""
	}
	switch code {
	case problem.OutcomeUnknown, problem.ResponseNotKept, problem.AnswerUnreadable:
		return "" // there was a run, and no retry changes what is known of it
	}
	switch {
	case v.lasting():
		return problem.OutcomeUnknown
	case code == "" && h.promisesAnother():
		return ""
	case code == "", code.NotRun(), code.Undone(), h.op.effects.Load() > 0 && code != problem.InFlight:
		return problem.NoAnswer
	default:
		return ""
	}
}

// deniesEffect reports whether the handler's own answer tells the client that nothing was
// done, although that is not certain. An answer that was judged definite, and could not be
// sealed, is true.
func (h *handlerRun) deniesEffect() bool {
	s := h.rec.Status()
	return !h.happened && (keepsMethod(s) || s >= http.StatusBadRequest && s < http.StatusInternalServerError)
}

// promisesAnother reports whether the client is told to come back for another answer. That
// denies nothing.
func (h *handlerRun) promisesAnother() bool {
	return h.rec.Status() == http.StatusConflict && h.rec.Get("Retry-After") != ""
}

// This file says what becomes of a handler that returns without an answer. net/http makes an
// empty 200 of that, and some handlers mean it. More often the real answer went past the
// guard, because an adapter gave the framework a writer of its own.

var (
	errSilent = errors.New("idempotency: the handler returned without a status and without a byte; usually an adapter lets a framework answer past the guard: use the module for it, such as ginidempotency or echoidempotency, and keep what answers errors inside the guard")
	errPast   = errors.New("idempotency: the handler answered past the guard, so its answer is not recorded, and retries are refused: use the module for the framework, such as ginidempotency or humaidempotency, and inside it neither the writer of the framework nor its router")
	errLate   = errors.New("idempotency: the handler wrote after it had returned without an answer; it must not return before its goroutines have answered")
)

// silences remembers which routes were reported, so that each is reported once.
type silences struct{ reported sync.Map }

// A silentRoute is a route, as far as requests tell it, and what was wrong with it.
type silentRoute struct {
	method, route string
	err           error
}

func (s *silences) isNew(r silentRoute) bool {
	_, known := s.reported.LoadOrStore(r, nil)
	return !known
}

// silence returns what it means on this route that the handler has returned without an
// answer, or 0 if the empty 200 is to be judged as any other answer. Silence that is not
// meant is reported.
func (h *handlerRun) silence() Outcome {
	if past, sure := h.rec.Bypassed(); past && (sure || h.guard.set.silence == 0) {
		h.past = true
		h.reportSilence(errPast)
		return Final // there was a run
	}
	if h.guard.set.silence != Final {
		h.reportSilence(errSilent)
	}
	return h.guard.set.silence
}

// WroteLate implements [response.Witness]. If the run is not judged yet, its outcome becomes
// Unknown.
func (h *handlerRun) WroteLate() { h.reportSilence(errLate) }

func (h *handlerRun) reportSilence(err error) {
	r := silentRoute{h.lease.method, h.lease.route, err}
	if r.route == "" {
		r.route = h.req.Pattern // a router inside the guard may have set it
	}
	if h.guard.core.silences.isNew(r) {
		h.lease.observe(event.Event{Kind: event.Silent, Route: r.route, Err: err})
	}
}

// Two frameworks have an adapter for middleware of net/http that calls their handlers, or answers
// their errors, when the middleware has returned. Around such a handler, a guard would record an
// empty 200. It is known by the function that stands for the handler, and refused before anything
// runs.

var (
	errEcho = errors.New("idempotency: echo.WrapMiddleware answers the errors of handlers when the guard is done, so the guard would record an empty 200: use module echoidempotency or echo4idempotency")

	errFiber = errors.New("idempotency: adaptor.HTTPMiddleware calls fiber's handlers when the guard is done, so the guard would record an empty 200: use module fiberidempotency")
)

// misplaced returns why a guard cannot protect the handler, if it is that of such an adapter.
func misplaced(next http.Handler) error {
	f, ok := next.(http.HandlerFunc)
	if !ok || f == nil {
		return nil
	}
	code := runtime.FuncForPC(reflect.ValueOf(f).Pointer())
	if code == nil {
		return nil
	}
	file, _ := code.FileLine(code.Entry()) // tells the package of a function that was inlined, too
	switch name := code.Name(); {
	case strings.Contains(name, "WrapMiddleware") && strings.Contains(name+file, "labstack/echo/"):
		return errEcho
	case strings.Contains(name, "HTTPMiddleware") && strings.Contains(name+file, "gofiber/fiber/"):
		return errFiber
	default:
		return nil
	}
}

// A refusing handler refuses the requests that the guard would have to protect.
type refusing struct {
	guard *Guard
	next  http.Handler
	cause error
}

func (h *refusing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.guard.set.wantsKey(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	h.guard.refuseMisplaced(w, r, h.cause)
}

func (g *Guard) refuseMisplaced(w http.ResponseWriter, r *http.Request, cause error) {
	d := decision{cause: cause}
	d.refuse(problem.StoreUnavailable)
	g.refuse(w, r, &d)
}

// A handler of gin that calls a guard is followed by the next one of its chain, whatever the guard
// has answered. Only Context.Abort prevents that, and the guard has no context. So the handler that
// a duplicate was refused for would run all the same. The guard refuses such requests before
// anything runs, and ends them as net/http provides: with http.ErrAbortHandler, which gin.Recovery
// takes for the end of the chain.

var errGin = errors.New("idempotency: a handler of gin calls the guard, which cannot keep gin from calling the next handler, nor see what that one answers: use module ginidempotency, or gin.WrapH for a handler of net/http that is the last one")

// inChain reports whether a handler of gin's chain calls the guard, other than gin.WrapH and
// gin.WrapF. Those are the last of their chains, and write to the guard. An adapter tells by its
// writer, which has the method Bypassed, that it knows about the chain. Who calls a handler is looked
// at once.
func (h *guarded) inChain(w http.ResponseWriter) bool {
	if h.placed.Load() {
		return false
	}
	if _, ok := w.(interface{ Bypassed() bool }); ok {
		return false
	}
	_, ofGin := w.(interface{ WriteHeaderNow() })
	var callers [128]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		name := frame.Function
		if strings.Contains(name, ".WrapH.") || strings.Contains(name, ".WrapF.") {
			ofGin = false
			break
		}
		if strings.HasSuffix(name, ".(*Context).Next") && (ofGin || strings.Contains(frame.File, "gin-gonic/gin")) {
			return true
		}
	}
	if !ofGin {
		h.placed.Store(true)
	}
	return ofGin
}

// refuseInChain refuses a request, and keeps gin from going on with it.
func (h *guarded) refuseInChain(w http.ResponseWriter, r *http.Request) {
	h.guard.refuseMisplaced(w, r, errGin)
	_ = http.NewResponseController(w).Flush() // where nobody recovers, the connection ends here
	panic(http.ErrAbortHandler)
}
