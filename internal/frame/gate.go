package frame

import (
	"context"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/keyheader"
)

// A Gate lets requests pass that a guard has nothing to do with, before a middleware makes anything for the guard.
type Gate struct {
	// OnlyLooks says that the guard has idempotency.WithShadow. Nothing passes then.
	OnlyLooks bool
	// Field is the canonical name of the field that has the key.
	Field string

	guard adapter.Guard
}

// NewGate returns the gate in front of a guard.
func NewGate(g *idempotency.Guard) Gate {
	of := adapter.For(g)
	return Gate{of.OnlyLooks(), of.Settings().KeyHeader, of}
}

// Passes is [Gate.PassesWith] for a request of net/http.
func (g *Gate) Passes(r *http.Request, call func() (ctx context.Context, route string)) bool {
	return g.PassesWith(r.Method, len(keyheader.Fields(r.Header, g.Field)) > 0, call)
}

// PassesWith reports whether the middleware calls its handler without the guard. keyed says whether the request has
// the field of the key. If somebody hears of such requests, the gate reports it with what call says: the context in
// which observers find what functions of the guard do, and the name of the route.
func (g *Gate) PassesWith(method string, keyed bool, call func() (ctx context.Context, route string)) bool {
	if g.OnlyLooks {
		return false
	}
	passes, heard := g.guard.Passes(method, keyed)
	if heard {
		ctx, route := call()
		g.guard.Named(route).ReportPassed(ctx, method)
	}
	return passes
}
