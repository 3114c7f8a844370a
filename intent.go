package idempotency

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// An intent is what a client wants done: a digest of scope, key and fingerprint. It is
// computed and never stored, so it survives whatever a store forgets.
type intent [sha256.Size]byte

// shortIntent is the memory on the stack in which intents are put together. The longest key and
// a usual scope fit in.
const shortIntent = 512

// intent returns the intent of a key that is bound to a fingerprint.
func (s *settings) intent(k Key, fp Fingerprint) intent {
	b := append(make([]byte, 0, shortIntent), "idempotency intent\x01"...)
	for _, part := range []string{s.namespace, k.Scope, k.Value} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	b = append(b, fp[:]...)
	if s.secret == nil {
		return sha256.Sum256(b)
	}
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(bytes.Clone(b)) // b itself stays off the heap
	return intent(mac.Sum(nil))
}

// id is what [Operation.ID] returns.
func (i intent) id() string { return i.digest("operation id", "") }

// deriveKey is what [DeriveKey] returns.
func (i intent) deriveKey(purpose string) string { return i.digest("derived key", purpose) }

func (i intent) digest(kind, purpose string) string {
	b := append(make([]byte, 0, shortIntent), "idempotency "...)
	b = append(append(append(b, kind...), 0), i[:]...)
	sum := sha256.Sum256(append(b, purpose...))
	var digits [32]byte
	hex.Encode(digits[:], sum[:16])
	return string(digits[:])
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
	if i, ok := intentOf(ctx); ok {
		return i.deriveKey(purpose)
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(random[:])
}

// intentKey is the key under which the context of a run that has no claim holds its intent.
type intentKey struct{}

func intentOf(ctx context.Context) (i intent, ok bool) {
	if op, ok := FromContext(ctx); ok {
		op.lease.keepClaim()
		return op.intent(), true
	}
	i, ok = ctx.Value(intentKey{}).(intent)
	return i, ok
}
