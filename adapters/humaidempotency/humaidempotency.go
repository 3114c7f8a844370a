// Package humaidempotency makes a middleware of huma of a guard of package idempotency.
//
// A guard around the router needs no module: guard.Handler(mux) is an http.Handler. This package
// is for guards of single operations and groups, behind huma's own authentication, and for
// refusals in huma's format.
//
// It is for the adapters whose contexts have the request and the writer of net/http: humago,
// humachi, humamux and humaflow. With another one, put the guard into the router, where it also
// protects huma's operations: guard.Handler with httprouter and bunrouter, and the modules
// ginidempotency with humagin and echo4idempotency with humaecho. [Middleware] panics there, and says
// so.
//
// The PATCH operations of huma's package autopatch have no middleware, neither of the API nor of an
// operation. This package does not protect them, and cannot see them. A guard around the router does.
package humaidempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"example.com/idempotency"
	"example.com/idempotency/internal/frame"
)

// Middleware returns a middleware that protects all operations of an API or a group, or one
// operation:
//
//	group.UseMiddleware(humaidempotency.Middleware(api, guard))
//	huma.Register(api, huma.Operation{
//		Middlewares: huma.Middlewares{humaidempotency.Middleware(api, guard.With(idempotency.WithRecovery(idempotency.Hold)))},
//		// ...
//	}, createPayout)
//
// In a handler, the run is found with idempotency.FromContext(ctx). The scope function finds what
// earlier middleware has put into the context with huma.WithValue in the request's context. Events
// name the route by the pattern of the router, or by method and path of the operation, unless
// idempotency.WithRoute names it.
//
// Refusals have the format that huma.NewErrorWithContext makes, by default problem details, in
// place of what idempotency.WithErrorWriter says. The code is the value of their only error.
//
// During a run the context writes into the record. The adapter's function Unwrap panics there: it
// would give the handler a writer past the guard. Huma's answer to invalid input, 422, is an
// answer like any other: it is recorded and replayed.
//
// Middleware panics if guard or api is nil, or if the API has an adapter that it cannot protect.
func Middleware(api huma.API, guard *idempotency.Guard) func(huma.Context, func(huma.Context)) {
	if api == nil || guard == nil {
		panic("humaidempotency: Middleware: nil API or guard")
	}
	if err := checkAdapter(api); err != nil {
		panic(err)
	}
	h := guard.With(idempotency.WithErrorWriter(refusals{api}.write)).Handler(http.HandlerFunc(run))
	gate := frame.NewGate(guard)
	return func(ctx huma.Context, next func(huma.Context)) {
		r, w, ok := unwrap(ctx)
		if !ok {
			panic(fmt.Errorf("humaidempotency: %T does not have the request of net/http: %w", ctx, errAdapter))
		}
		if gate.Passes(r, func() (context.Context, string) {
			return frame.With(ctx.Context(), &exchange{ctx: ctx}), pattern(r, ctx.Operation())
		}) {
			next(ctx)
			return
		}
		x := &exchange{ctx: ctx, next: next, looks: gate.OnlyLooks}
		r = r.WithContext(frame.With(ctx.Context(), x))
		r.Pattern = pattern(r, ctx.Operation())
		x.request = r
		if !x.looks {
			w = &contextWriter{ResponseWriter: w, ctx: ctx}
		}
		h.ServeHTTP(w, r)
	}
}

// pattern returns what events call a route.
func pattern(r *http.Request, op *huma.Operation) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	return op.Method + " " + op.Path
}

var errAdapter = errors.New("put the guard into the router: guard.Handler with httprouter and bunrouter, ginidempotency with gin, echo4idempotency with echo")

// checkAdapter refuses the adapters that are known not to work. Groups hide theirs; then the
// first request finds out.
func checkAdapter(api huma.API) error {
	t := reflect.TypeOf(api.Adapter())
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch name := path.Base(t.PkgPath()); name {
	case "humagin", "humaecho", "humafiber", "humahttprouter", "humabunrouter":
		return fmt.Errorf("humaidempotency: contexts of %s do not have the request of net/http: %w", name, errAdapter)
	}
	return nil
}

// unwrap returns the request and the writer below a context.
func unwrap(ctx huma.Context) (*http.Request, http.ResponseWriter, bool) {
	for {
		switch c := ctx.(type) {
		case *runContext: // of a guard further out
			return c.r, c.w, true
		case *lookContext: // likewise
			return c.r, c.w, true
		case interface{ Unwrap() huma.Context }:
			ctx = c.Unwrap()
		case interface {
			Unwrap() (*http.Request, http.ResponseWriter)
		}:
			r, w := c.Unwrap()
			return r, w, true
		default:
			return nil, nil, false
		}
	}
}

// An exchange is a request on its way through a guard.
type exchange struct {
	ctx     huma.Context // outside the guard
	next    func(huma.Context)
	request *http.Request // as the guard gets it
	looks   bool          // the guard has idempotency.WithShadow
}

// run calls the handlers after the guard.
func run(w http.ResponseWriter, r *http.Request) {
	x, _ := frame.From[*exchange](r.Context())
	if r == x.request { // the guard has nothing to do with it
		x.next(huma.WithContext(x.ctx, r.Context()))
		return
	}
	if x.looks {
		_, outside, _ := unwrap(x.ctx)
		x.next(&lookContext{runContext{humaContext: x.ctx, r: r, w: w}, outside})
		return
	}
	x.next(&runContext{humaContext: x.ctx, r: r, w: w})
}

// Context returns the huma context of a request that a [Middleware] has handed to its guard. The
// functions of the guard, for keys and fingerprints for example, get such requests. The context
// must not be used once the request has been answered.
func Context(ctx context.Context) (huma.Context, bool) {
	x, ok := frame.From[*exchange](ctx)
	if !ok {
		return nil, false
	}
	if again, ok := frame.Again(ctx); ok { // which has the body
		return &runContext{humaContext: x.ctx, r: again}, true
	}
	return x.ctx, true
}
