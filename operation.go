package idempotency

import (
	"context"
	"reflect"
	"sync/atomic"

	"example.com/idempotency/internal/response"
	"example.com/idempotency/internal/stepcall"
)

// An Operation is one run of a handler under a claim, as the handler sees it; see
// [FromContext]. Its methods are safe for concurrent use, also after the run has
// ended.
type Operation struct {
	lease     *lease
	outer     *Operation // that it runs in, or nil
	outcome   atomic.Uint32
	steps     stepsTaken
	joint     joint              // guarded by steps.mu
	writer    *response.Recorder // of a handler's answer
	uncertain atomic.Bool        // a step was found that may or may not have happened
	effects   atomic.Int32       // of steps that this run has begun or found, and that may have happened
}

// Key returns the idempotency key, decoded, and the scope that the [ScopeFunc] gave it.
func (o *Operation) Key() Key { return o.lease.id }

// ID returns a name for what this run is to do, in 32 hexadecimal digits: a digest of scope,
// key and the request that the key is bound to, and of what [WithDerivation] adds. It is the
// same in every attempt and whatever the store forgets, as [DeriveKey] explains. A unique
// constraint on it in your own database stops a second effect.
//
// It can be logged and handed on. A key that can be guessed, such as an order number, can be
// confirmed by anyone who knows the request too, unless WithDerivation sets a secret.
//
// Where the store may forget a claim in a crash, ID first makes the claim durable, and calls the
// store for that. If it cannot, it ends the run's context with [ErrLeaseLost].
func (o *Operation) ID() string {
	o.lease.keepClaim()
	return o.intent().id()
}

func (o *Operation) intent() intent {
	return o.lease.set.intent(o.lease.id, o.lease.claim.Fingerprint)
}

// Attempt returns the number of this run: 1, or more if earlier runs with this key
// left no recorded answer. It rises with each run, and so serves as a fencing
// number.
func (o *Operation) Attempt() int { return o.lease.attempt }

// Valid reports whether the run surely still holds its claim, judged by the local
// monotonic clock from before the claim was sent, less a tenth of the lease. Ask right
// before an effect that must not happen twice: a process that was paused for longer
// than the lease finds false here even before its context is cancelled. On a machine
// that was suspended as a whole the clock stands still too, and Valid cannot tell.
func (o *Operation) Valid() bool { return o.lease.valid() }

// SetOutcome overrides how this run is judged, whatever its status. It has no effect
// once the handler has returned, or when the handler panics, in which case the outcome
// is [Unknown] in any event. The last call counts; a value that is not an Outcome
// is ignored. The client of an Unknown run is not shown a 4xx; see [Unknown].
func (o *Operation) SetOutcome(outcome Outcome) {
	if outcome >= Final && outcome <= Unknown {
		o.outcome.Store(uint32(outcome))
	}
}

// holds reports whether op, or a run that it runs in, holds the key. A run that has ended
// holds nothing, although its context may live on.
func (c *core) holds(op *Operation, key string) bool {
	for ; op != nil; op = op.outer {
		if op.lease.key == key && sameStore(op.lease.core.store, c.store) && !op.hasEnded() {
			return true
		}
	}
	return false
}

// sameStore compares stores, of which some cannot be compared.
func sameStore(a, b Store) bool { return reflect.TypeOf(a).Comparable() && a == b }

type operationKey struct{}

// FromContext returns the operation of the run that ctx belongs to. It reports false
// outside of a run: for requests without a key, on routes without a guard, and for
// handlers that are called directly, in tests for example.
func FromContext(ctx context.Context) (*Operation, bool) {
	o, ok := ctx.Value(operationKey{}).(*Operation)
	return o, ok
}

// An unprotectedContext is the context of what runs without a claim. The operation, or the
// step, that it may be called from is not its own. It has an intent, so that downstream
// services recognise a repetition all the same.
type unprotectedContext struct {
	context.Context
	intent intent
}

func (c unprotectedContext) Value(key any) any {
	switch key {
	case operationKey{}, stepcall.ContextKey{}:
		return nil
	case intentKey{}:
		return c.intent
	}
	return c.Context.Value(key)
}
