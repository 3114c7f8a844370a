package idempotency

import (
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/seal"
)

// This file shows the external tests of the package what they need of its inside: first
// keys and fingerprints, then what is sealed, then what waits.

// The functions that make keys and fingerprints from what a request says.
var (
	KeyFromHeader = keyFromHeader
	FingerprintOf = fingerprintOf
)

// StoreKey returns the name under which a store keeps a key's record.
func StoreKey(scope, value string) string { return intent.Key{Scope: scope, Value: value}.Name() }

// Unseal reads a stored answer as a guard with that sealer does.
func Unseal(sealer Sealer, stored []byte, key string, fp Fingerprint) error {
	_, err := (&seal.Seals{Sealer: sealer}).OpenAnswer(stored, key, fp, nil)
	return err
}

// UnsealStep reads the stored value of a step likewise.
func UnsealStep(sealer Sealer, stored []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	return (&seal.Seals{Sealer: sealer}).OpenStep(stored, key, fp, name)
}

// SealStep returns the stored form of the value of a step.
func SealStep(sealer Sealer, value []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	return (&seal.Seals{Sealer: sealer}).Step(value, key, fp, name)
}

// Seal returns the stored form of an answer with that body.
func Seal(sealer Sealer, body, key string, fp Fingerprint) ([]byte, error) {
	a := &answer.Answer{Kind: answer.KindKept, Status: 200, Body: []byte(body)}
	return (&seal.Seals{Sealer: sealer}).Answer(a, key, fp)
}

// Waiting returns how many requests wait for the answer of another.
func (g *Guard) Waiting() int { return g.Stats().Waiting }
