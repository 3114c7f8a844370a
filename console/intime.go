package console

import (
	"context"
	"errors"
	"sync/atomic"

	"example.com/idempotency/internal/giveup"
	"example.com/idempotency/store"
)

// This file asks a store that may ignore its context, and may panic. The guard has its own calls for that.

// A gate counts the calls that a store has not returned from, so that no more than a few are left to it.
type gate struct{ left atomic.Int64 }

const mostLeft = 32

var errStuck = errors.New("the store does not return from calls that were given up")

// inTime returns what f returns, or an error when the context ends or f panics.
func inTime[T any](ctx context.Context, g *gate, f func(context.Context) (T, error)) (T, error) {
	if g.left.Load() >= mostLeft {
		var none T
		return none, errStuck
	}
	return giveup.Call(ctx, &g.left, f)
}

// A lister lists in time.
type lister struct {
	store.Lister
	gate *gate
}

func (l lister) List(ctx context.Context, q store.Query) (store.Page, error) {
	return inTime(ctx, l.gate, func(ctx context.Context) (store.Page, error) { return l.Lister.List(ctx, q) })
}
