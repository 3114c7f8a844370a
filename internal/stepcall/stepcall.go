// Package stepcall is what a step of a run tells the HTTP client that is called inside
// it. It exists so that a program that is only a client need not link the library with
// its stores.
package stepcall

import "context"

// ContextKey is the key under which the context of a step holds the step, and the
// context of an operation holds nil: an operation inside a step is not part of it.
type ContextKey struct{}

// A Step numbers the calls of one step.
type Step interface {
	// BeginCall returns the idempotency key of the next call, which is the same in all
	// attempts of the run. It refuses a call that begins before the last one has ended:
	// which of the two is the first would differ from attempt to attempt. Resumed says
	// that an earlier attempt may have made the call, and with what result is not known.
	BeginCall() (key string, resumed bool, err error)
	// EndCall ends the call that BeginCall has begun.
	EndCall()
}

// From returns the step that ctx belongs to.
func From(ctx context.Context) (Step, bool) {
	s, ok := ctx.Value(ContextKey{}).(Step)
	return s, ok
}
