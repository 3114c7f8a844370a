// Package fiberidempotency makes a middleware of fiber v3 of a guard of package idempotency.
//
// Fiber stands on fasthttp, not on net/http. The guard sees a copy of the request, and its answer
// is copied into fiber's response. Handlers between them use fiber's context as ever.
//
// Middleware outside the guard sees every request, and none of it is recorded: recover, request
// IDs, CORS, authentication. The app's error handler answers inside the guard, so its answers are
// recorded as they go out.
package fiberidempotency

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/basicauth"

	"example.com/idempotency"
	"example.com/idempotency/internal/frame"
)

// Middleware returns a middleware that protects the handlers after it, on a route or a group:
//
//	app.Post("/charges", fiberidempotency.Middleware(guard), charge)
//	app.Group("/payouts", fiberidempotency.Middleware(guard.With(idempotency.WithRecovery(idempotency.Hold))))
//
// In a handler, the run is found with idempotency.FromContext(c.Context()). Events name a route by
// the pattern of fiber, "POST /charges/:id", and those of a group by that of the group, unless
// idempotency.WithRoute names them.
//
// The error that a run returns is handed to the app's error handler at once. Middleware outside
// gets nil, and finds the answer in the response. What turns errors into other errors therefore
// stands inside. The error of a request without a key is returned, and that of each request beside a
// guard with idempotency.WithShadow.
//
// During a run, the whole answer is kept until it is recorded: a body that is a stream is read to
// its end first. Trailers are dropped. A handler that hijacks the connection is answered as one
// that has failed. One that drops it has made a run whose answer nobody gets: its outcome is
// idempotency.Unknown, as after a panic of http.ErrAbortHandler. What c.End sends is recorded
// afterwards, and only as not kept if it was a stream. If fiber's timeout middleware stands inside and gives up on its handler, the
// outcome of the run is idempotency.Unknown, because the handler still runs.
//
// The router's own answers, 404 and 405, are not recorded. Middleware panics if guard is nil.
func Middleware(guard *idempotency.Guard) fiber.Handler {
	if guard == nil {
		panic("fiberidempotency: Middleware: nil guard")
	}
	h, gate := guard.Handler(http.HandlerFunc(next)), frame.NewGate(guard)
	looks, field := gate.OnlyLooks, []byte(gate.Field)
	return func(c fiber.Ctx) error {
		if gate.PassesWith(c.Method(), has(c, field), func() (context.Context, string) {
			return frame.With(c.Context(), &exchange{c: c}), pattern(c)
		}) {
			return c.Next()
		}
		x := &exchange{Context: c.Context(), c: c, looks: looks, writer: writers.Get().(*writer)}
		x.room = x.values[:]
		x.makeRequest()
		if looks && c.Request().IsBodyStream() {
			x.request.Body = &lateBody{request: c.Request()}
		}
		if !looks {
			x.fields(x.writer.outer, c.Response())
			maps.Copy(x.writer.header, x.writer.outer)
		}
		x.serve(h, x.writer, &x.request)
		if !x.passed && !x.gone {
			x.writer.send(c)
		}
		x.writer.free() // and after a panic, it is left to the garbage collector
		return x.err
	}
}

// An exchange is a request on its way through a guard, and the context of that request. Its parts are one
// allocation, which is not used again: somebody may keep the request or its context.
type exchange struct {
	context.Context // of the request outside the guard

	c       fiber.Ctx
	request http.Request // as the guard gets it
	url     url.URL
	room    []string        // what is left of values
	values  [12]string      // of header fields
	run     context.Context // that the handlers get
	looks   bool            // the guard has idempotency.WithShadow
	writer  *writer         // to which the guard answers
	body    body            // of the request
	passed  bool            // there was no run, and the handlers have answered
	gone    bool            // a run has closed the connection
	err     error           // to return to outer middleware
}

// Value implements [context.Context].
func (x *exchange) Value(key any) any {
	if frame.IsKey[*exchange](key) {
		return x
	}
	return x.Context.Value(key)
}

// serve calls the guard. A run that has dropped its connection ends there, and so does the memory of the body.
func (x *exchange) serve(h http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		x.body.Reset(nil)
		if x.gone {
			_ = recover()
		}
	}()
	h.ServeHTTP(w, r)
}

// Run lets idempotency.FromContext find the run by a fiber.Ctx, which is a context.Context.
func (x *exchange) Run() context.Context { return x.run }

// next calls the handlers after the guard.
func next(w http.ResponseWriter, r *http.Request) {
	x, _ := frame.From[*exchange](r.Context())
	c := x.c
	if x.looks {
		x.passed = true
		x.look(w, r)
		return
	}
	outer := c.RequestCtx().UserValue(frame.Mark)
	// Deferred, because after a panic an outer middleware goes on.
	defer func() {
		if !timedOut(c) {
			c.SetContext(x.Context)
			c.RequestCtx().SetUserValue(frame.Mark, outer)
		}
	}()
	x.run = r.Context()
	c.SetContext(x.run)
	c.RequestCtx().SetUserValue(frame.Mark, x)
	if r == &x.request { // the guard has nothing to do with it
		x.passed = true
		x.err = c.Next()
		return
	}
	putBack(c, r)
	err := c.Next()
	x.gone = !timedOut(c) && closed(c)
	switch {
	case x.gone && !ended(c):
		x.err = err
		panic(http.ErrAbortHandler)
	case x.gone:
		x.err = err // it came too late for the client
	default:
		x.answer(r, err)
	}
	if err := x.record(w); err != nil {
		x.answer(r, err)
		_ = x.record(w) // the answer to an error is no stream
	}
}

// look calls the handlers beside a guard that only looks on, and returns their error to middleware
// outside. Of an error that is answered there, the guard is told the status; and so it is of a
// stream, whose body comes later.
func (x *exchange) look(w http.ResponseWriter, r *http.Request) {
	c := x.c
	t, ok := w.(frame.Tap)
	if !ok { // a guard has no use for this request
		x.err = c.Next()
		return
	}
	late, stream := x.request.Body.(*lateBody)
	if !stream {
		_, _ = io.Copy(io.Discard, r.Body) // it is in memory
	}
	x.err = c.Next()
	_, limited := x.Deadline()
	if x.Err() != nil || !limited && timedOut(c) { // the response is somebody else's
		t.Note(fiber.StatusRequestTimeout, nil)
		t.Judge(uint8(idempotency.Unknown))
		return
	}
	if stream && late.fill() {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	gone := closed(c)
	switch response := c.Response(); {
	case gone && !ended(c):
		t.Note(response.StatusCode(), nil)
		t.Judge(uint8(idempotency.Unknown))
	case x.err != nil:
		status := fiber.StatusInternalServerError
		var known *fiber.Error
		if errors.As(x.err, &known) {
			status = known.Code
		}
		t.Note(status, []byte(x.err.Error()))
		if ofTheRouter(c, x.err) {
			t.Judge(uint8(idempotency.NotExecuted))
		}
	case limited || response.IsBodyStream(): // a timeout outside may write into the response by now
		t.Note(response.StatusCode(), nil)
	default:
		t.Note(response.StatusCode(), response.Body())
	}
}

// timedOut reports whether somebody has given up on a handler, and has answered for it. The handler
// still runs then, and has the context and the response for itself.
func timedOut(c fiber.Ctx) bool { return c.RequestCtx().LastTimeoutErrorResponse() != nil }

var errHijacked = errors.New("fiberidempotency: a protected handler cannot hijack its connection, because nothing records what goes over it")

// closed reports whether a handler has closed the connection, with c.Drop or c.End. A context without
// a connection, as of fiber's adaptor, panics when it is asked for one. The server sets the deadline
// that this takes away once more before it answers.
func closed(c fiber.Ctx) (yes bool) {
	defer func() {
		if recover() != nil {
			yes = false
		}
	}()
	err := c.RequestCtx().Conn().SetWriteDeadline(time.Time{})
	return errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe)
}

// ended reports whether a connection that is closed was so by c.End, which sends the response first
// and so writes its length into the header. Three kinds of status have none.
func ended(c fiber.Ctx) bool {
	h := &c.Response().Header
	status := h.StatusCode()
	return h.ContentLength() != 0 || len(h.Peek(fiber.HeaderContentLength)) > 0 ||
		status < fiber.StatusOK || status == fiber.StatusNoContent || status == fiber.StatusNotModified
}

// answer makes the app answer an error, as it would do at the end of all middleware.
func (x *exchange) answer(r *http.Request, err error) {
	c := x.c
	op, ok := idempotency.FromContext(r.Context())
	if ok && (timedOut(c) || errors.Is(err, fiber.ErrRequestTimeout)) {
		op.SetOutcome(idempotency.Unknown) // it may have been stopped in the middle
	}
	if timedOut(c) {
		return
	}
	if c.RequestCtx().Hijacked() {
		c.RequestCtx().Hijack(nil)
		c.RequestCtx().HijackSetNoResponse(false)
		err = errors.Join(errHijacked, err)
	}
	if err == nil {
		return
	}
	if ok && ofTheRouter(c, err) {
		op.SetOutcome(idempotency.NotExecuted)
	}
	if c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError) // as fiber does
	}
}

// ofTheRouter reports whether an error says that fiber has no route for the request.
func ofTheRouter(c fiber.Ctx, err error) bool {
	return !c.Matched() && (errors.Is(err, fiber.ErrNotFound) || errors.Is(err, fiber.ErrMethodNotAllowed))
}

// Context returns the fiber context of a request that a [Middleware] has handed to its guard. The
// functions of the guard, for keys and fingerprints for example, get such requests. The context,
// and the strings that it returns, must not be used once the request has been answered.
func Context(ctx context.Context) (fiber.Ctx, bool) {
	x, ok := frame.From[*exchange](ctx)
	if !ok {
		return nil, false
	}
	return x.c, true
}

// Scope returns the scope function of a guard that reads the caller off the fiber context, where
// the authentication has left it:
//
//	idempotency.New(store, fiberidempotency.Scope(func(c fiber.Ctx) (string, error) {
//		return fiber.Locals[string](c, "tenant"), nil
//	}))
//
// An empty scope is refused. So is a request that has not come through [Middleware].
func Scope(f func(fiber.Ctx) (string, error)) idempotency.ScopeFunc {
	scope := frame.Scope("fiberidempotency", "fiber", Context, f)
	return func(r *http.Request) (string, error) {
		of, err := scope(r)
		return strings.Clone(of), err // fiber uses its memory again
	}
}

// User is an argument of [Scope]: the user whom fiber's middleware basicauth has verified. Without
// one, the request is refused as unauthenticated.
func User(c fiber.Ctx) (string, error) {
	user := basicauth.UsernameFromContext(c)
	if user == "" {
		return "", idempotency.ErrUnauthenticated
	}
	return user, nil
}
