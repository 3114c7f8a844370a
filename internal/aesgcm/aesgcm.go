// Package aesgcm seals messages with AES-256-GCM, under keys that can be rotated.
package aesgcm

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"errors"
	"fmt"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// keyIDLen bytes of a digest of the key stand before each sealed message and tell which key
// opens it.
const keyIDLen = 4

// ErrUnknownKey says that a message names a key that the Sealer does not have.
var ErrUnknownKey = errors.New("sealed with an unknown key")

var (
	errShort   = errors.New("sealed message is too short")
	errAltered = errors.New("sealed message was altered, or is bound to other data")
)

// A Sealer seals with one key, and opens what any of its keys has sealed. It is safe for
// concurrent use.
type Sealer struct{ keys []key }

type key struct {
	id   [keyIDLen]byte
	aead cipher.AEAD
}

// New returns a Sealer that seals with current, and also opens what the former keys have
// sealed.
func New(current []byte, former ...[]byte) (*Sealer, error) {
	s := &Sealer{}
	for _, secret := range append([][]byte{current}, former...) {
		if len(secret) != KeySize {
			return nil, fmt.Errorf("key of %d bytes, want %d", len(secret), KeySize)
		}
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(append([]byte("idempotency sealer key id\x00"), secret...))
		s.keys = append(s.keys, key{id: [keyIDLen]byte(sum[:]), aead: aead})
	}
	return s, nil
}

// Seal returns the sealed form of message, bound to other data that is not part of it.
func (s *Sealer) Seal(message, bound []byte) ([]byte, error) {
	k := s.keys[0]
	dst := make([]byte, 0, keyIDLen+len(message)+k.aead.Overhead())
	return k.aead.Seal(append(dst, k.id[:]...), nil, message, bound), nil
}

// Open returns the message in a sealed form, which must be bound to the same data.
func (s *Sealer) Open(sealed, bound []byte) ([]byte, error) {
	if len(sealed) < keyIDLen {
		return nil, errShort
	}
	err := ErrUnknownKey
	for _, k := range s.keys {
		if k.id != [keyIDLen]byte(sealed) {
			continue
		}
		if message, err := k.aead.Open(nil, nil, sealed[keyIDLen:], bound); err == nil {
			return message, nil
		}
		err = errAltered
	}
	return nil, err
}
