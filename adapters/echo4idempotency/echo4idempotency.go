// Package echo4idempotency makes a middleware of echo v4 of a guard of package idempotency. For
// echo v5 there is package echoidempotency.
//
// A guard around the whole server needs no module: guard.Handler(e) is an http.Handler. This
// package is for guards of single routes and groups, behind echo's own authentication.
//
// Middleware outside the guard sees every request, and none of it is recorded: Recover, request
// IDs, CORS, authentication. Echo's error handler answers inside the guard, so its answers are
// recorded as they go out.
package echo4idempotency

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"

	"github.com/labstack/echo/v4"

	"example.com/idempotency"
	"example.com/idempotency/internal/frame"
	"example.com/idempotency/internal/frameworks"
)

// Middleware returns a middleware that protects the handlers after it, on a route or a group:
//
//	e.POST("/charges", charge, echo4idempotency.Middleware(guard))
//	e.Group("/payouts", echo4idempotency.Middleware(guard.With(idempotency.WithRecovery(idempotency.Hold))))
//
// In a handler, the run is found with idempotency.FromContext(c.Request().Context()). Events name
// the route by the pattern of echo, "POST /charges/:id", unless idempotency.WithRoute names it.
//
// The error that a run returns is handed to the HTTPErrorHandler at once. Middleware outside gets
// nil, and finds the answer in the context's response. What turns errors into other errors
// therefore stands inside. The error of a request without a key is returned, and that of each
// request beside a guard with idempotency.WithShadow.
//
// The router's own answers, 404 and 405, are not recorded. Middleware panics if guard is nil.
func Middleware(guard *idempotency.Guard) echo.MiddlewareFunc {
	if guard == nil {
		panic("echo4idempotency: Middleware: nil guard")
	}
	h, gate := guard.Handler(http.HandlerFunc(run)), frame.NewGate(guard)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if gate.Passes(c.Request(), func() (context.Context, string) {
				return frame.With(c.Request().Context(), &exchange{c: c}), frame.Pattern(c.Request(), c.Path())
			}) {
				return next(c)
			}
			x := &exchange{c: c, next: next, response: c.Response(), outside: c.Request(), looks: gate.OnlyLooks}
			r := frame.Request(x.outside, x, c.Path())
			x.request = r
			frameworks.Serve(h, x.writer(), r)
			if x.asked {
				c.SetRequest(x.outside)
			}
			return x.err
		}
	}
}

// An exchange is a request on its way through a guard.
type exchange struct {
	c        echo.Context
	next     echo.HandlerFunc
	response *echo.Response // outside the guard
	outside  *http.Request  // likewise
	request  *http.Request  // as the guard gets it
	looks    bool           // the guard has idempotency.WithShadow
	err      error          // to return to outer middleware
	asked    bool           // the context has a request for a function of the guard
}

// run calls the handlers after the guard.
func run(w http.ResponseWriter, r *http.Request) {
	x, _ := frame.From[*exchange](r.Context())
	c := x.c
	outer := c.Get(frame.Mark)
	c.Set(frame.Mark, x)
	// Deferred, because after a panic an outer middleware answers.
	defer func() {
		if x.lost() {
			return
		}
		c.Set(frame.Mark, outer)
		c.SetRequest(x.outside)
		frame.HandBack(x.outside, x.request)
		c.SetResponse(x.response)
	}()
	x.asked = false
	c.SetRequest(r)
	if r == x.request { // the guard has nothing to do with it
		x.err = x.next(c)
		return
	}
	if x.looks {
		x.look(w)
		return
	}
	c.SetResponse(echo.NewResponse(w, c.Echo()))
	switch err := x.next(c); {
	case x.lost():
		frame.Lost(r)
	case err != nil:
		if op, ok := idempotency.FromContext(r.Context()); ok && ofTheRouter(c, err) {
			op.SetOutcome(idempotency.NotExecuted)
		}
		if c.Response().Committed {
			w.WriteHeader(statusOf(err)) // too late for the client; the guard learns of a failure
		}
		c.Error(err)
	}
}

// lost reports whether echo has given the context to another request.
func (x *exchange) lost() bool { return x.c.Get(frame.Mark) != any(x) }

// writer returns what the guard writes to. One that only looks on stands below echo's response,
// so that handlers and middleware have that one.
func (x *exchange) writer() http.ResponseWriter {
	if x.looks {
		return x.response.Writer
	}
	return x.response
}

// look calls the handlers beside a guard that only looks on, and returns their error to middleware
// outside. Of an error that is answered there, the guard is told the status.
func (x *exchange) look(w http.ResponseWriter) {
	below := x.response.Writer
	x.response.Writer = w
	defer func() {
		if !x.lost() {
			x.response.Writer = below
		}
	}()
	x.err = x.next(x.c)
	if x.err != nil && !x.response.Committed {
		w.(frame.Tap).Note(statusOf(x.err), []byte(x.err.Error()))
	}
	if x.err != nil && ofTheRouter(x.c, x.err) {
		w.(frame.Tap).Judge(uint8(idempotency.NotExecuted))
	}
}

// statusOf returns the status that an error is answered with.
func statusOf(err error) int {
	var known *echo.HTTPError
	if errors.As(err, &known) {
		return known.Code
	}
	return http.StatusInternalServerError
}

// ofTheRouter reports whether an error says that echo has no route for the request.
func ofTheRouter(c echo.Context, err error) bool {
	if !errors.Is(err, echo.ErrNotFound) && !errors.Is(err, echo.ErrMethodNotAllowed) {
		return false
	}
	if isOneOf(c.Handler(), echo.NotFoundHandler, echo.MethodNotAllowedHandler) {
		return true
	}
	// A group with middleware has a route for what it does not know.
	unknown := false
	for _, route := range c.Echo().Routes() {
		if route.Path == c.Path() {
			if route.Method == c.Request().Method {
				return false
			}
			unknown = unknown || route.Method == echo.RouteNotFound
		}
	}
	return unknown
}

func isOneOf(h echo.HandlerFunc, others ...echo.HandlerFunc) bool {
	pointer := func(h echo.HandlerFunc) uintptr { return reflect.ValueOf(h).Pointer() }
	return slices.ContainsFunc(others, func(o echo.HandlerFunc) bool { return pointer(o) == pointer(h) })
}

// Context returns the echo context of a request that a [Middleware] has handed to its guard. The
// functions of the guard, for keys, fingerprints and refusals for example, get such requests. In one that is given the
// body, the context reads that body, and the handler's request stays as it is. The
// context must not be used once the request has been answered.
func Context(ctx context.Context) (echo.Context, bool) {
	x, ok := frame.From[*exchange](ctx)
	if !ok {
		return nil, false
	}
	if again, ok := frame.Again(ctx); ok && !x.looks { // while a handler has the context
		x.asked = true
		x.c.SetRequest(again)
	}
	return x.c, true
}

// Scope returns the scope function of a guard that reads the caller off the echo context, where
// the authentication has left it:
//
//	idempotency.New(store, echo4idempotency.Scope(func(c echo.Context) (string, error) {
//		tenant, _ := c.Get("tenant").(string)
//		return tenant, nil
//	}))
//
// An empty scope is refused. So is a request that has not come through [Middleware].
func Scope(f func(echo.Context) (string, error)) idempotency.ScopeFunc {
	return frame.Scope("echo4idempotency", "echo", Context, f)
}
