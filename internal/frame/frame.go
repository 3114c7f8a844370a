// Package frame is what the middleware of web frameworks have in common. It knows no framework.
package frame

import (
	"context"
	"fmt"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/internal/reread"
)

// key is that of a value of one module in the context of a request.
type key[X any] struct{}

// With returns a context in which the functions of a guard find x.
func With[X any](ctx context.Context, x X) context.Context {
	return context.WithValue(ctx, key[X]{}, x)
}

// IsKey reports whether a context is asked for the x of With. It lets x be that context itself.
func IsKey[X any](of any) bool {
	_, ok := of.(key[X])
	return ok
}

// From returns the x of With.
func From[X any](ctx context.Context) (x X, ok bool) {
	x, ok = ctx.Value(key[X]{}).(X)
	return x, ok
}

// Request returns a request as a guard gets it: with x in its context, and with the route of the
// framework, if there is one, as its pattern.
func Request[X any](r *http.Request, x X, route string) *http.Request {
	r = r.WithContext(With(r.Context(), x))
	r.Pattern = Pattern(r, route)
	return r
}

// Pattern returns what events call a route of the framework, and the pattern that r has if there is none.
func Pattern(r *http.Request, route string) string {
	if route == "" {
		return r.Pattern
	}
	return r.Method + " " + route
}

// Scope returns the scope function of a module that reads the caller off the framework's context, which
// find finds. A request without one has not come through the middleware.
func Scope[C any](module, framework string, find func(context.Context) (C, bool), f func(C) (string, error)) idempotency.ScopeFunc {
	if f == nil {
		panic(module + ": Scope: nil function")
	}
	outside := fmt.Errorf("%s: the request has no %s context: its guard needs %[1]s.Middleware, after the authentication", module, framework)
	return func(r *http.Request) (string, error) {
		c, ok := find(r.Context())
		if !ok {
			return "", outside
		}
		return f(c)
	}
}

// A Tap is the writer of a guard that only looks on. It measures an answer that does not come through it.
type Tap interface {
	Note(status int, part []byte)
	Judge(outcome uint8)
}

// Again returns the request that a function of the guard may read, which has the body. There is one while such a function
// is called with the body.
func Again(ctx context.Context) (*http.Request, bool) { return reread.From(ctx) }

// HandBack gives the request outside the form that was parsed of its copy, which a guard with nothing to do has handed
// on: the server deletes the temporary files of its own request.
func HandBack(outside, r *http.Request) {
	if outside.MultipartForm == nil {
		outside.Form, outside.PostForm, outside.MultipartForm = r.Form, r.PostForm, r.MultipartForm
	}
}
