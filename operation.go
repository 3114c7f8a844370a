package idempotency

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"

	"example.com/idempotency/internal/stepcall"
)

// An Operation is one run of a handler under a claim, as the handler sees it; see
// [FromContext]. Its methods are safe for concurrent use, also after the run has
// ended.
type Operation struct {
	lease     *lease
	outcome   atomic.Uint32
	steps     stepsTaken
	uncertain atomic.Bool // a step was found that may or may not have happened
}

// Key returns the idempotency key, decoded, and the scope that the [ScopeFunc] gave it.
func (o *Operation) Key() Key { return o.lease.id }

// ID returns the identity of the record in 32 hexadecimal digits: random, the same in
// all attempts, and different when the key is used anew after its record has expired.
// It reveals nothing of the key, so it can be logged and handed on.
func (o *Operation) ID() string { return operationID(o.lease.record.Origin) }

// operationID is a digest, because the origin is also the owner token of the first
// attempt.
func operationID(origin Owner) string {
	sum := sha256.Sum256(append([]byte("idempotency operation id\x00"), origin[:]...))
	return hex.EncodeToString(sum[:16])
}

// Attempt returns the number of this run: 1, or more if earlier runs with this key
// ended without a definite answer. It rises with each run, and so serves as a fencing
// number.
func (o *Operation) Attempt() int { return o.lease.record.Attempt }

// Valid reports whether the run surely still holds its claim, judged by the local
// monotonic clock from before the claim was sent, less a tenth of the lease. Ask right
// before an effect that must not happen twice: a process that was paused for longer
// than the lease finds false here even before its context is cancelled. On a machine
// that was suspended as a whole the clock stands still too, and Valid cannot tell.
func (o *Operation) Valid() bool { return o.lease.valid() }

// SetOutcome overrides how this run is judged, whatever its status. It has no effect
// once the handler has returned, or when the handler panics, in which case the outcome
// is [Unknown] in any event. The last call counts; a value that is no Outcome is
// ignored.
func (o *Operation) SetOutcome(outcome Outcome) {
	if outcome >= Final && outcome <= Unknown {
		o.outcome.Store(uint32(outcome))
	}
}

type operationKey struct{}

// FromContext returns the operation of the run that ctx belongs to. It reports false
// outside of a run: for requests without a key, on routes without a guard, and for
// handlers that are called directly, in tests for example.
func FromContext(ctx context.Context) (*Operation, bool) {
	o, ok := ctx.Value(operationKey{}).(*Operation)
	return o, ok
}

// DeriveKey returns an idempotency key for something downstream: 32 hexadecimal digits
// that are the same in all attempts of the operation that ctx belongs to, and different
// for each purpose and each operation. With it the downstream's own idempotency makes an
// effect exactly-once that a retry repeats.
//
// Purposes that end in a number sign and a number, "charge#1", are those of package client:
// the first request that the step "charge" sends without a key of its own.
//
// Outside of an operation it returns a new random key each time.
func DeriveKey(ctx context.Context, purpose string) string {
	op, ok := FromContext(ctx)
	if !ok {
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
		return hex.EncodeToString(random[:])
	}
	return deriveKey(op.lease.record.Origin, purpose)
}

func deriveKey(origin Owner, purpose string) string {
	b := append([]byte("idempotency derived key\x00"), origin[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(purpose)))
	sum := sha256.Sum256(append(b, purpose...))
	return hex.EncodeToString(sum[:16])
}

// An unprotectedContext is the context of what runs without a claim. The operation, or the
// step, that it may be called from is not its own: two that are called from one would share
// the names of their steps and their derived keys.
type unprotectedContext struct{ context.Context }

func (c unprotectedContext) Value(key any) any {
	switch key {
	case operationKey{}, stepcall.ContextKey{}:
		return nil
	}
	return c.Context.Value(key)
}
