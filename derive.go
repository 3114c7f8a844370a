package idempotency

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

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
