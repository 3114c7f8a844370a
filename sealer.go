package idempotency

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"

	"example.com/idempotency/internal/response"
)

// A Sealer encrypts and authenticates answers before they reach the store; see
// [WithSealer] and [NewSealer]. Both methods are given data that the sealed answer must
// be bound to: opening with other data must fail, so that an answer that is moved to
// another key answers nobody. They must be safe for concurrent use and must not keep or
// change their arguments.
type Sealer interface {
	// Seal returns the form of an answer that is stored. With an error, or a
	// panic, the answer is not recorded, and its key is held.
	Seal(answer, bound []byte) ([]byte, error)
	// Open returns what was sealed. With an error nobody is answered and nothing runs.
	Open(sealed, bound []byte) ([]byte, error)
}

// NewSealer returns a [Sealer] that uses AES-256-GCM with random nonces. Each key has
// 32 bytes; any other length is an error. New answers are sealed with current; those sealed with one of the former
// keys can still be opened, so that a key is rotated by moving it to the end for as
// long as the longest TTL.
func NewSealer(current []byte, former ...[]byte) (Sealer, error) {
	s := &gcmSealer{}
	for _, key := range append([][]byte{current}, former...) {
		if len(key) != 32 {
			return nil, fmt.Errorf("idempotency: NewSealer: key of %d bytes, want 32", len(key))
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("idempotency: NewSealer: %w", err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("idempotency: NewSealer: %w", err)
		}
		sum := sha256.Sum256(append([]byte("idempotency sealer key id\x00"), key...))
		s.keys = append(s.keys, sealingKey{id: [keyIDLen]byte(sum[:]), aead: aead})
	}
	return s, nil
}

// keyIDLen bytes of a digest of the key stand before each sealed answer and tell which
// key opens it.
const keyIDLen = 4

type sealingKey struct {
	id   [keyIDLen]byte
	aead cipher.AEAD
}

type gcmSealer struct{ keys []sealingKey }

func (s *gcmSealer) Seal(answer, bound []byte) ([]byte, error) {
	k := s.keys[0]
	dst := make([]byte, 0, keyIDLen+len(answer)+k.aead.Overhead())
	return k.aead.Seal(append(dst, k.id[:]...), nil, answer, bound), nil
}

var errUnknownSealingKey = errors.New("idempotency: answer is sealed with an unknown key")

func (s *gcmSealer) Open(sealed, bound []byte) ([]byte, error) {
	if len(sealed) < keyIDLen {
		return nil, ErrCorrupt
	}
	for _, k := range s.keys {
		if k.id != [keyIDLen]byte(sealed) {
			continue
		}
		if answer, err := k.aead.Open(nil, nil, sealed[keyIDLen:], bound); err == nil {
			return answer, nil
		}
	}
	return nil, errUnknownSealingKey
}

// sealedVersion is the first byte of a sealed answer, in place of response.Version.
const (
	sealedBit     = 0x80
	sealedVersion = sealedBit | response.Version
)

// seal returns the stored form of an answer. The plain form is bound to key and
// fingerprint by what is inside it, the sealed one by its sealer.
func (s *settings) seal(a *response.Answer, key string, fp Fingerprint) ([]byte, error) {
	plain := a.Encode(key, fp)
	if s.sealer == nil {
		return plain, nil
	}
	sealed, err := s.sealer.Seal(plain, bound(key, fp))
	if err != nil {
		return nil, fmt.Errorf("idempotency: sealing an answer: %w", err)
	}
	return append([]byte{sealedVersion}, sealed...), nil
}

// unseal reads a stored answer. A guard with a sealer accepts nothing else: whoever can
// write to the store could otherwise make up answers.
// The fields are put into space if they fit.
func (s *settings) unseal(stored []byte, key string, fp Fingerprint, space []response.Field) (response.Answer, error) {
	if s.sealer != nil {
		switch {
		case len(stored) == 0 || stored[0]&sealedBit == 0:
			return response.Answer{}, fmt.Errorf("%w: not sealed", ErrCorrupt)
		case stored[0] != sealedVersion:
			return response.Answer{}, fmt.Errorf("%w: %d", response.ErrVersion, stored[0])
		}
		plain, err := s.sealer.Open(stored[1:], bound(key, fp))
		if err != nil {
			return response.Answer{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		stored = plain
	}
	a, err := response.Decode(stored, key, fp, space)
	if errors.Is(err, response.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return a, err
}

func bound(key string, fp Fingerprint) []byte {
	b := append([]byte{sealedVersion}, key...)
	return append(b, fp[:]...)
}

// sealStep and unsealStep do for the value of a step what seal and unseal do for an
// answer. The byte in front is none of the kinds of a step: a guard without the sealer must
// not take what is sealed for the mark of a step that may be run again.
func (s *settings) sealStep(value []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	if s.sealer == nil {
		return value, nil
	}
	sealed, err := s.sealer.Seal(value, append(bound(key, fp), name...))
	if err != nil {
		return nil, fmt.Errorf("idempotency: sealing a step: %w", err)
	}
	return append([]byte{sealedVersion}, sealed...), nil
}

func (s *settings) unsealStep(stored []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	value := stored
	if s.sealer != nil {
		sealed, ok := bytes.CutPrefix(stored, []byte{sealedVersion})
		if !ok {
			return nil, fmt.Errorf("%w: step %q is not sealed", ErrCorrupt, name)
		}
		var err error
		if value, err = s.sealer.Open(sealed, append(bound(key, fp), name...)); err != nil {
			return nil, fmt.Errorf("%w: step %q: %w", ErrCorrupt, name, err)
		}
	}
	if len(value) == 0 || !bytes.Contains(stepKinds, value[:1]) {
		return nil, fmt.Errorf("%w: step %q is of an unknown kind", ErrCorrupt, name)
	}
	return value, nil
}
