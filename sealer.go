package idempotency

import (
	"errors"
	"fmt"

	"example.com/idempotency/internal/aesgcm"
)

// How answers, steps and keys are sealed before they reach the store. Package internal/engine/seal
// says what is sealed, and package internal/aesgcm has the cipher.

// A Sealer encrypts and authenticates answers, and with [WithKeptKeys] also keys, before they
// reach the store; see [WithSealer] and [NewSealer]. Both methods get data to which a sealed answer must be bound. Open must
// fail if it gets other data than Seal got. An answer that somebody moves to another key then
// answers nobody.
//
// The methods must be safe for concurrent use, and must not keep or change their arguments: a sealed
// form may lie in the store's own memory. What they return may be an argument or a part of one. The
// guard does not change it, but reads it later, so a sealer must not use that memory again.
type Sealer interface {
	// Seal returns the form of an answer to store. If it returns an error, the answer is not
	// recorded and its key is held. If it does so for a key, which is sealed before its request
	// runs, nothing runs. A panic of either method counts as an error that it returns.
	Seal(answer, bound []byte) ([]byte, error)
	// Open returns the answer from its sealed form. If it returns an error, the client gets
	// no answer and nothing runs. An error that wraps [ErrUnreadableHere] says that another
	// process may have the key: the client is told to try again.
	Open(sealed, bound []byte) ([]byte, error)
}

// NewSealer returns a [Sealer] that uses AES-256-GCM with random nonces. A key has 32 bytes;
// any other length is an error. The sealer seals with current, and opens what was sealed with
// any of its keys.
//
// Rotate a key in three deployments, each complete before the next: NewSealer(old, new), by
// which all processes can read both; NewSealer(new, old); and NewSealer(new), when the longest
// TTL and the longest retention have passed since the second, and no key is held from before
// it. Rotate before a key has sealed 2³² messages, because beyond that two may share a nonce,
// which breaks AES-GCM. Each recorded answer, value of a step and mark of [AtMostOnce] is one,
// and with [WithKeptKeys] each request: at a thousand a second, a key lasts for 49 days.
func NewSealer(current []byte, former ...[]byte) (Sealer, error) {
	s, err := aesgcm.New(current, former...)
	if err != nil {
		return nil, fmt.Errorf("idempotency: NewSealer: %w", err)
	}
	return keyring{s}, nil
}

type keyring struct{ *aesgcm.Sealer }

func (k keyring) Open(sealed, bound []byte) ([]byte, error) {
	answer, err := k.Sealer.Open(sealed, bound)
	if errors.Is(err, aesgcm.ErrUnknownKey) {
		err = fmt.Errorf("%w: %w", ErrUnreadableHere, err)
	}
	return answer, err
}
