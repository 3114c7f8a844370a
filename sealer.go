package idempotency

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"example.com/idempotency/internal/aesgcm"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/store"
)

// How answers, steps and keys are sealed before they reach the store. Package response and step.go
// define what is sealed of answers and steps, and package aesgcm has the cipher.

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

// calmSealer makes an error of a panic of its sealer. The guard seals and opens also in goroutines
// of its own, where a panic would end the process.
type calmSealer struct{ Sealer }

func (c calmSealer) Seal(answer, bound []byte) (sealed []byte, err error) {
	defer recovered("the sealer", &err)
	return c.Sealer.Seal(answer, bound)
}

func (c calmSealer) Open(sealed, bound []byte) (answer []byte, err error) {
	defer recovered("the sealer", &err)
	return c.Sealer.Open(sealed, bound)
}

// opened says what the error of a sealer means for the record.
func opened(err error) error {
	if errors.Is(err, ErrUnreadableHere) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// sealedVersion is the first byte of a sealed answer or step. The first byte of a plain
// answer is answer.Version, which does not have the bit.
const (
	sealedBit     = 0x80
	sealedVersion = sealedBit | answer.Version
)

// seal returns the stored form of an answer. A plain form contains the key and fingerprint
// that it belongs to. The sealer binds a sealed form to them.
func (s *settings) seal(a *answer.Answer, key string, fp Fingerprint) ([]byte, error) {
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

// unseal reads a stored answer, and puts its fields into space if they fit. With a sealer it
// accepts nothing that is not sealed: anybody who can write to the store could otherwise make
// up answers. Its errors wrap ErrCorrupt or ErrUnreadableHere.
func (s *settings) unseal(stored []byte, key string, fp Fingerprint, space *answer.Space) (answer.Answer, error) {
	if s.sealer != nil {
		switch {
		case len(stored) == 0:
			return answer.Answer{}, fmt.Errorf("%w: it is empty", ErrCorrupt)
		case stored[0]&sealedBit == 0:
			return answer.Answer{}, fmt.Errorf("%w: it is not sealed", ErrUnreadableHere)
		case stored[0] != sealedVersion:
			return answer.Answer{}, fmt.Errorf("%w: version %d", ErrUnreadableHere, stored[0])
		}
		plain, err := s.sealer.Open(stored[1:], bound(key, fp))
		if err != nil {
			return answer.Answer{}, opened(err)
		}
		stored = plain
	}
	a, err := answer.Decode(stored, key, fp, space)
	switch {
	case errors.Is(err, answer.ErrVersion):
		err = fmt.Errorf("%w: %w", ErrUnreadableHere, err)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return a, err
}

// sealStep returns the stored form of a step. A sealed one begins with a byte that is not one
// of stepKinds. A guard without the sealer therefore never takes it for the mark of a step
// that may run again.
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

// unsealStep reads a stored step. With a sealer it accepts nothing that is not sealed.
func (s *settings) unsealStep(stored []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	value := stored
	if s.sealer != nil {
		sealed, ok := bytes.CutPrefix(stored, []byte{sealedVersion})
		if !ok {
			return nil, fmt.Errorf("%w: step %q is not sealed", ErrUnreadableHere, name)
		}
		var err error
		if value, err = s.sealer.Open(sealed, append(bound(key, fp), name...)); err != nil {
			return nil, fmt.Errorf("step %q: %w", name, opened(err))
		}
	}
	if s.sealer == nil && bytes.HasPrefix(value, []byte{sealedVersion}) {
		return nil, fmt.Errorf("%w: step %q is sealed", ErrUnreadableHere, name)
	}
	if len(value) == 0 || !bytes.Contains(stepKinds, value[:1]) {
		return nil, fmt.Errorf("%w: step %q is of an unknown kind", ErrCorrupt, name)
	}
	return value, nil
}

// stepsUnreadableHere returns the error of a step that another process can read and this one cannot.
func (s *settings) stepsUnreadableHere(rec store.Record, key string) error {
	for name, stored := range rec.Steps {
		if _, err := s.unsealStep(stored, key, rec.Fingerprint, name); errors.Is(err, ErrUnreadableHere) {
			return err
		}
	}
	return nil
}

// maxSealedKey is the longest sealed key that stores keep.
const maxSealedKey = 1024

// sealKey returns the sealed form of a key, or nil if it is not to be kept. What is sealed is the
// length of the scope, the scope and the value. The sealer binds it to the name of the record.
func (s *settings) sealKey(k Key, name string) ([]byte, error) {
	if !s.keptKeys {
		return nil, nil
	}
	plain := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(k.Scope)+len(k.Value)), uint64(len(k.Scope)))
	plain = append(append(plain, k.Scope...), k.Value...)
	sealed, err := s.sealer.Seal(plain, boundKey(name))
	if err != nil {
		return nil, fmt.Errorf("idempotency: sealing a key: %w", err)
	}
	if len(sealed) >= maxSealedKey {
		return nil, nil
	}
	return append([]byte{sealedVersion}, sealed...), nil
}

// unsealKey reads a sealed key. It accepts only the key that the record has its name from.
func (s *settings) unsealKey(stored []byte, name string) (Key, error) {
	sealed, ok := bytes.CutPrefix(stored, []byte{sealedVersion})
	if !ok {
		return Key{}, fmt.Errorf("%w: its key is of version %d", ErrUnreadableHere, stored[0])
	}
	plain, err := s.sealer.Open(sealed, boundKey(name))
	if err != nil {
		return Key{}, opened(err)
	}
	scope, n := binary.Uvarint(plain)
	if n <= 0 || scope > uint64(len(plain)-n) {
		return Key{}, fmt.Errorf("%w: its key is cut off", ErrCorrupt)
	}
	k := Key{Scope: string(plain[n : n+int(scope)]), Value: string(plain[n+int(scope):])}
	if k.storeKey() != name {
		return Key{}, fmt.Errorf("%w: its key is that of another record", ErrCorrupt)
	}
	return k, nil
}

// boundKey returns the data that a sealed key is bound to. No answer and no step is bound to it.
func boundKey(name string) []byte { return append([]byte("key\x01"), name...) }

// bound returns the data that a sealed answer is bound to. For a step, its name follows.
func bound(key string, fp Fingerprint) []byte {
	b := append([]byte{sealedVersion}, key...)
	return append(b, fp[:]...)
}
