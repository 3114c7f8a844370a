// Package seal makes and reads the stored forms of answers, steps and keys: sealed, if there is a
// sealer, or plain.
package seal

import (
	"errors"
	"fmt"

	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/store"
)

// A Sealer encrypts and decrypts, and binds what it encrypts to other data.
type Sealer interface {
	Seal(answer, bound []byte) ([]byte, error)
	Open(sealed, bound []byte) ([]byte, error)
}

// Seals makes and reads stored forms. The zero Seals makes and reads plain ones.
type Seals struct {
	Sealer   Sealer // from Calm, or nil
	KeptKeys bool   // keep keys beside their records
}

// Calm returns a Sealer that makes errors of the panics of s. It returns nil for nil.
func Calm(s Sealer) Sealer {
	if s == nil {
		return nil
	}
	return calm{s}
}

// calm makes an error of a panic of its sealer. The guard seals and opens also in goroutines
// of its own, where a panic would end the process.
type calm struct{ Sealer }

func (c calm) Seal(answer, bound []byte) (sealed []byte, err error) {
	defer inflight.Recovered("the sealer", &err)
	return c.Sealer.Seal(answer, bound)
}

func (c calm) Open(sealed, bound []byte) (answer []byte, err error) {
	defer inflight.Recovered("the sealer", &err)
	return c.Sealer.Open(sealed, bound)
}

// opened says what the error of a sealer means for the record.
func opened(err error) error {
	if errors.Is(err, store.ErrUnreadableHere) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
}

// sealedVersion is the first byte of a sealed answer, step or key: version 1 of that form, whatever the
// version of what is sealed. The first byte of a plain answer is answer.Version, which does not have the bit.
const (
	sealedBit     = 0x80
	sealedVersion = sealedBit | Version
)

// Version is that of what is sealed.
const Version = 1

// VersionOf returns the version of a sealed form by its first byte, and whether it is one.
func VersionOf(first byte) (version int, sealed bool) {
	return int(first &^ sealedBit), first&sealedBit != 0
}

// Answer returns the stored form of an answer. A plain form contains the key and fingerprint
// that it belongs to. The sealer binds a sealed form to them.
func (s *Seals) Answer(a *answer.Answer, key string, fp store.Fingerprint) ([]byte, error) {
	plain := a.Encode(key, fp)
	if s.Sealer == nil {
		return plain, nil
	}
	sealed, err := s.Sealer.Seal(plain, bound(key, fp))
	if err != nil {
		return nil, fmt.Errorf("idempotency: sealing an answer: %w", err)
	}
	return append([]byte{sealedVersion}, sealed...), nil
}

// OpenAnswer reads a stored answer, and puts its fields into space if they fit. With a sealer it
// accepts nothing that is not sealed: anybody who can write to the store could otherwise make
// up answers. Its errors wrap store.ErrCorrupt or store.ErrUnreadableHere.
func (s *Seals) OpenAnswer(stored []byte, key string, fp store.Fingerprint, space *answer.Space) (answer.Answer, error) {
	if s.Sealer != nil {
		switch {
		case len(stored) == 0:
			return answer.Answer{}, fmt.Errorf("%w: it is empty", store.ErrCorrupt)
		case stored[0]&sealedBit == 0:
			return answer.Answer{}, fmt.Errorf("%w: it is not sealed", store.ErrUnreadableHere)
		case stored[0] != sealedVersion:
			return answer.Answer{}, fmt.Errorf("%w: version %d", store.ErrUnreadableHere, stored[0])
		}
		plain, err := s.Sealer.Open(stored[1:], bound(key, fp))
		if err != nil {
			return answer.Answer{}, opened(err)
		}
		stored = plain
	}
	a, err := answer.Decode(stored, key, fp, space)
	switch {
	case errors.Is(err, answer.ErrVersion):
		err = fmt.Errorf("%w: %w", store.ErrUnreadableHere, err)
	case err != nil:
		err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return a, err
}

// bound returns the data that a sealed answer is bound to. For a step, its name follows.
func bound(key string, fp store.Fingerprint) []byte {
	b := append([]byte{sealedVersion}, key...)
	return append(b, fp[:]...)
}
