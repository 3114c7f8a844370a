package idempotency

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"example.com/idempotency/internal/engine"
)

// An Operation is one run of a handler under a claim, as the handler sees it; see
// [FromContext]. Its methods are safe for concurrent use, also after the run has
// ended.
type Operation engine.Operation

func (o *Operation) inner() *engine.Operation { return (*engine.Operation)(o) }

// Key returns the idempotency key, decoded, and the scope that the [ScopeFunc] gave it.
func (o *Operation) Key() Key { return Key(o.inner().Key()) }

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
func (o *Operation) ID() string { return o.inner().ID() }

// Attempt returns the number of this run: 1, or more if earlier runs with this key
// left no recorded answer. It rises with each run, and so serves as a fencing
// number.
func (o *Operation) Attempt() int { return o.inner().Attempt() }

// Valid reports whether the run surely still holds its claim, judged by the local
// monotonic clock from before the claim was sent, less a tenth of the lease. Ask right
// before an effect that must not happen twice: a process that was paused for longer
// than the lease finds false here even before its context is cancelled. On a machine
// that was suspended as a whole the clock stands still too, and Valid cannot tell. Nor can it
// where the claim is a transaction, as in one commit of PostgreSQL, and the connection is lost: what such
// a run commits is refused, and an effect outside the database needs a step.
func (o *Operation) Valid() bool { return o.inner().Valid() }

// SetOutcome overrides how this run is judged, whatever its status. It has no effect
// once the handler has returned, or when the handler panics, in which case the outcome
// is [Unknown] in any event. The last call counts; a value that is not an Outcome
// is ignored. The client of an Unknown run is not shown a 4xx; see [Unknown].
func (o *Operation) SetOutcome(outcome Outcome) { o.inner().SetOutcome(outcome) }

// FromContext returns the operation of the run that ctx belongs to. It reports false
// outside of a run: for requests without a key, on routes without a guard, and for
// handlers that are called directly, in tests for example.
func FromContext(ctx context.Context) (*Operation, bool) {
	o, ok := engine.FromContext(ctx)
	return (*Operation)(o), ok
}

// DeriveKey returns an idempotency key for a downstream service: 32 hexadecimal digits
// that are the same whenever the same intent is run, and different for each purpose. An
// intent is a scope, a key and the request that the key is bound to. So the downstream's own
// idempotency makes an effect exactly-once: in every attempt, after the store has lost the
// record or its TTL has ended, in another region, and in a run that [WithFailOpen] lets
// through. Another request under a reused key gets other keys.
//
// A client that repeats a key and its request on purpose, to have the effect a second time,
// gets the same derived keys. It must use a new key. [WithDerivation] adds a namespace and
// a secret.
//
// Purposes that end in a number sign and a number, "charge#1", belong to package client:
// that one is the first request that the step "charge" sends without a key of its own.
//
// Outside of a run DeriveKey returns a new random key each time.
func DeriveKey(ctx context.Context, purpose string) string {
	if key, ok := engine.DeriveKey(ctx, purpose); ok {
		return key
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(random[:])
}
