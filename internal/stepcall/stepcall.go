// Package stepcall connects a step of a run with the client that its function calls: the step gives
// the client the keys of its requests. It also hands what the program has chosen, by package client,
// to the clients of RPC frameworks. It is a package of its own so that a program that is only a
// client does not link the library with its stores.
package stepcall

import (
	"context"
	"time"
)

// ContextKey is the key under which the context of a step holds the step. The context of an
// operation holds nil there, because an operation inside a step is not part of the step.
type ContextKey struct{}

// A Step numbers the calls of one step.
type Step interface {
	// BeginCall returns the idempotency key of the next call, which is the same in all
	// attempts of the run. It refuses a call that begins before the last one has ended,
	// because their order could differ from attempt to attempt.
	BeginCall() (key string, err error)
	// EndCall ends the call that BeginCall has begun.
	EndCall()
	// Resumed reports whether an earlier attempt may have made the calls, with an unknown result.
	Resumed() bool
}

// From returns the step that ctx belongs to.
func From(ctx context.Context) (Step, bool) {
	s, ok := ctx.Value(ContextKey{}).(Step)
	return s, ok
}

// ChosenKey is the key under which a context holds what the program has decided about the key of its
// request.
type ChosenKey struct{}

// Chosen is what a context holds under [ChosenKey].
type Chosen interface {
	// Chosen returns the key and when the server forgets it, if that is known. None says that the
	// request gets no key.
	Chosen() (key string, expires time.Time, none bool)
}
