package frametest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// What must hold for the middleware of each framework whose handlers return errors: what middleware
// outside and inside the guard sees of it, and that a guard in the wrong place is refused. A framework
// has an Adapter, which lends its context to the links of a chain.

// A Link is a middleware, or the last handler of a chain.
type Link func(Context) error

// A Context is that of a framework, as far as links use it.
type Context interface {
	// Next calls the rest of the chain.
	Next() error
	// Answer answers with a text.
	Answer(status int, body string) error
	// ReadBody reads the body of the request, if the framework has not done so.
	ReadBody()
	// Field is a field of the form.
	Field(name string) string
	// Seen is what middleware outside can tell of the answer: its status and its size.
	Seen() (status int, size int64)
	// Own returns what middleware outside must find again after the guard: its request, for example.
	Own() []any
}

// An Adapter is a framework whose middleware is tested.
type Adapter struct {
	// Module is the name of the module, which errors tell.
	Module string
	// Serve starts a server for POST /charges until the end of the test, and returns the URL of the
	// route. A chain has links and, in the place of its middleware, guards. The function onError answers
	// the errors of handlers; if it is nil, the framework does.
	Serve func(t testing.TB, onError Link, chain ...any) (url string)
	// Everywhere starts a server whose middleware are the chain, and whose only route is GET /charges.
	Everywhere func(t testing.TB, chain ...any) (url string)
	// Group does the same for a group /group. It is nil where a group has no middleware of its own.
	Group func(t testing.TB, chain ...any) (url string)
	// Error makes an error that the framework answers with a status.
	Error func(status int, text string) error
	// Find returns the context of a request that a guard's functions get.
	Find func(context.Context) (Context, bool)
	// Scope makes a scope function of the module; Bare is a handler of net/http that comes to no
	// middleware of it.
	Scope func() idempotency.ScopeFunc
	Bare  func() http.Handler
	// Nil are the calls of the module that panic because an argument is nil.
	Nil []func()
	// Misplaced are middleware that somebody makes of a guard without the module. They look right, and are
	// not. Placed are servers with a guard of net/http where it does work.
	Misplaced map[string]func(*idempotency.Guard) any
	Placed    map[string]func(t testing.TB, guard *idempotency.Guard) (url string)
	// SilentStatus is the status that a guard that only looks on sees of a handler that says nothing.
	SilentStatus int
}

// Run tests the middleware of the framework.
func (a Adapter) Run(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"outer middleware":    a.outerMiddleware,
		"panic":               a.panics,
		"error without a run": a.errorWithoutARun,
		"without a key":       a.withoutAKey,
		"nested":              a.nested,
		"no route":            a.noRoute,
		"404 of a handler":    a.notFound,
		"error writer":        a.errorWriter,
		"scope":               a.scope,
		"misplaced":           a.misplaced,
		"shadow":              a.shadow,
		"shadow of no route":  a.shadowOfNoRoute,
		"forms":               a.forms,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func (a Adapter) declined(Context) error { return a.Error(http.StatusUnprocessableEntity, "declined") }

// outerMiddleware: middleware outside the guard sees the answer and its own context, and no error that
// it would answer again.
func (a Adapter) outerMiddleware(t *testing.T) {
	var seen []string
	observe := func(c Context) error {
		own := c.Own()
		err := c.Next()
		requireOwn(t, own, c)
		status, size := c.Seen()
		seen = append(seen, fmt.Sprint(status, " ", size, " ", err))
		return err
	}
	answered := 0
	onError := func(c Context) error { // it does not look whether there is an answer
		answered++
		return c.Answer(http.StatusUnprocessableEntity, "no")
	}
	guard, _ := NewGuard(t, HeaderScope)
	url := a.Serve(t, onError, Link(observe), guard, Link(a.declined))
	require.Equal(t, Answer{Status: 422, Body: "no"}, Post(t, url))
	require.Equal(t, Answer{Status: 422, Body: "no", Replayed: true}, Post(t, url))
	require.Equal(t, 1, answered)
	require.Equal(t, []string{"422 2 <nil>", "422 2 <nil>"}, seen)
}

func requireOwn(t *testing.T, want []any, c Context) {
	t.Helper()
	got := c.Own()
	require.Len(t, got, len(want))
	for i := range want {
		if want[i] != got[i] {
			t.Errorf("%T is another one", want[i])
		}
	}
}

// panics: after a panic, middleware outside finds its own context and can answer.
func (a Adapter) panics(t *testing.T) {
	recovers := func(c Context) (err error) {
		own := c.Own()
		defer func() {
			if recover() != nil {
				requireOwn(t, own, c)
				err = errors.New("panicked")
			}
		}()
		return c.Next()
	}
	guard, _ := NewGuard(t, HeaderScope)
	url := a.Serve(t, nil, Link(recovers), guard, Link(func(Context) error { panic("bug") }))
	require.Equal(t, http.StatusInternalServerError, Post(t, url).Status)
}

// errorWithoutARun: it goes to middleware outside, as if there were no guard.
func (a Adapter) errorWithoutARun(t *testing.T) {
	var got error
	observe := func(c Context) error {
		got = c.Next()
		return got
	}
	guard, _ := NewGuard(t, HeaderScope, idempotency.WithMethods(http.MethodPut))
	require.Equal(t, http.StatusUnprocessableEntity, Post(t, a.Serve(t, nil, Link(observe), guard, Link(a.declined))).Status)
	require.ErrorContains(t, got, "declined")
}

// withoutAKey: a request that passes goes to the handler, and observers hear of it in the framework's context.
func (a Adapter) withoutAKey(t *testing.T) {
	var seen []event.Event
	guard, _ := NewGuard(t, HeaderScope, idempotency.WithObserver(func(ctx context.Context, e event.Event) {
		_, ok := a.Find(ctx)
		require.True(t, ok)
		seen = append(seen, event.Event{Kind: e.Kind, Method: e.Method, Route: e.Route})
	}))
	url := a.Serve(t, nil, guard, Link(a.declined))
	require.Equal(t, http.StatusUnprocessableEntity, send(t, url, small, "tenant", "").status)
	require.Equal(t, []event.Event{{Kind: event.Bypassed, Method: http.MethodPost, Route: "POST /charges"}}, seen)
}

// nested: a route behind two guards on one store runs once, behind the outer one.
func (a Adapter) nested(t *testing.T) {
	guard, events := NewGuard(t, HeaderScope)
	url := a.Serve(t, nil, guard, guard, Link(a.declined))
	first, retry := Post(t, url), Post(t, url)
	require.Equal(t, http.StatusUnprocessableEntity, first.Status)
	require.True(t, retry.Replayed)
	require.Equal(t, first.Body, retry.Body)
	require.Len(t, events(event.Nested), 1)
}

// noRoute: the router answers 404 and 405 itself, and may know the route tomorrow.
func (a Adapter) noRoute(t *testing.T) {
	type unrouted struct {
		serve  func(testing.TB, ...any) string
		path   string
		status int
	}
	cases := []unrouted{{a.Everywhere, "/nowhere", 404}, {a.Everywhere, "/charges", 405}}
	if a.Group != nil {
		cases = append(cases, unrouted{a.Group, "/group/nowhere", 404})
	}
	for _, c := range cases {
		guard, _ := NewGuard(t, HeaderScope)
		url := c.serve(t, guard) + c.path
		first := Post(t, url)
		require.Equal(t, c.status, first.Status, c.path)
		require.Equal(t, first, Post(t, url), c.path)
	}
}

// notFound: a handler's 404 is an answer.
func (a Adapter) notFound(t *testing.T) {
	guard, _ := NewGuard(t, HeaderScope)
	url := a.Serve(t, nil, guard, Link(func(Context) error { return a.Error(http.StatusNotFound, "Not Found") }))
	require.Equal(t, http.StatusNotFound, Post(t, url).Status)
	require.True(t, Post(t, url).Replayed)
}

// errorWriter: a refusal can have the format of the program's own errors.
func (a Adapter) errorWriter(t *testing.T) {
	guard, _ := NewGuard(t, HeaderScope, idempotency.WithStrictKeys(true),
		idempotency.WithErrorWriter(func(_ http.ResponseWriter, r *http.Request, p problem.Document) {
			c, ok := a.Find(r.Context())
			require.True(t, ok)
			require.NoError(t, c.Answer(p.Status, "code "+string(p.Code)))
		}))
	require.Equal(t, Answer{Status: 400, Body: "code key-invalid"}, Post(t, a.Serve(t, nil, guard, Link(a.declined))))
}

// scope: a guard that needs the framework's context refuses requests that come without it, and says why.
func (a Adapter) scope(t *testing.T) {
	guard, events := NewGuard(t, a.Scope())
	require.Equal(t, http.StatusForbidden, Post(t, ServeHTTP(t, guard.Handler(a.Bare()))+"/charges").Status)
	refused := events(event.Refused)
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0].Err, a.Module+".Middleware")
	for _, call := range a.Nil {
		require.Panics(t, call)
	}
}

// misplaced: where the guard cannot protect, each request with a key is refused before anything runs,
// and the log says what to do. A guard that only looks on tells that, too. What the framework answers in
// time is protected.
func (a Adapter) misplaced(t *testing.T) {
	for name, wrong := range a.Misplaced {
		guard, events := NewGuard(t, HeaderScope)
		runs := 0
		url := a.Serve(t, nil, wrong(guard), Link(func(c Context) error {
			runs++
			return a.declined(c)
		}))
		for range 2 {
			got := Post(t, url)
			require.Equal(t, http.StatusInternalServerError, got.Status, name)
			require.Contains(t, got.Body, problem.Misplaced, name)
		}
		require.Zero(t, runs, name)
		refused := events(event.Refused)
		require.Len(t, refused, 2, name)
		require.ErrorContains(t, refused[0].Err, a.Module, name)

		shadow, seen := NewGuard(t, HeaderScope, idempotency.WithShadow(true))
		require.Equal(t, http.StatusCreated, Post(t, a.Serve(t, nil, wrong(shadow), Link(func(c Context) error {
			return c.Answer(http.StatusCreated, "charged")
		}))).Status, name)
		require.Len(t, seen(event.Shadow), 1, name)
		require.Equal(t, problem.Misplaced, seen(event.Shadow)[0].Code, name)
	}

	for name, serve := range a.Placed {
		guard, _ := NewGuard(t, HeaderScope)
		url := serve(t, guard)
		want := Post(t, url)
		require.Equal(t, http.StatusCreated, want.Status, name)
		want.Replayed = true
		require.Equal(t, want, Post(t, url), name)
	}
}

// shadow: with a guard that only looks on, handlers and middleware have the response that they would
// have without it, and errors go to middleware outside.
func (a Adapter) shadow(t *testing.T) {
	maps := func(c Context) error {
		if c.Next() != nil {
			return a.Error(http.StatusTeapot, "mapped")
		}
		return nil
	}
	for name, test := range map[string]struct {
		outside Link
		handler Link
		status  int // as the guard sees it
	}{
		"answer":       {Context.Next, func(c Context) error { return c.Answer(http.StatusCreated, "done") }, http.StatusCreated},
		"nothing":      {Context.Next, func(Context) error { return nil }, a.SilentStatus},
		"declined":     {Context.Next, a.declined, http.StatusUnprocessableEntity},
		"other error":  {Context.Next, func(Context) error { return http.ErrNotSupported }, http.StatusInternalServerError},
		"mapped error": {maps, a.declined, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.Shadow(t, test.status, test.outside, test.handler)
		})
	}
}

// Shadow compares a handler behind a middleware with the same two beside a guard that only looks on,
// which sees a status.
func (a Adapter) Shadow(t *testing.T, status int, outside, handler Link) {
	t.Helper()
	ask := func(guard any) (answer Answer, seen string) {
		observe := func(c Context) error {
			err := c.Next()
			status, size := c.Seen()
			seen = fmt.Sprint(status, size, err)
			return err
		}
		return Post(t, a.Serve(t, nil, Link(observe), outside, guard, Link(func(c Context) error {
			c.ReadBody()
			return handler(c)
		}))), seen
	}
	guard, events := NewGuard(t, HeaderScope, idempotency.WithShadow(true))
	want, wantSeen := ask(Link(Context.Next))
	got, seen := ask(guard)
	require.Equal(t, want, got)
	require.Equal(t, wantSeen, seen)
	e := LastShadow(t, events, 1)
	require.Equal(t, event.Run, e.Would)
	require.NoError(t, e.Err)
	require.Equal(t, status, e.Status)
}

// shadowOfNoRoute: a guard that only looks on knows that the router's own answers are not recorded.
func (a Adapter) shadowOfNoRoute(t *testing.T) {
	guard, events := NewGuard(t, HeaderScope, idempotency.WithShadow(true))
	url := a.Everywhere(t, guard, Link(func(c Context) error {
		c.ReadBody()
		return c.Next()
	})) + "/nowhere"
	for n := 1; n <= 2; n++ {
		require.Equal(t, http.StatusNotFound, Post(t, url).Status)
		e := LastShadow(t, events, n)
		require.Equal(t, event.Run, e.Would)
		require.NoError(t, e.Err)
	}
}
