package seal

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/store"
)

// maxSealedKey is the longest sealed key that stores keep.
const maxSealedKey = 1024

// Key returns the sealed form of a key, or nil if it is not to be kept. What is sealed is the
// length of the scope, the scope and the value. The sealer binds it to the name of the record.
func (s *Seals) Key(k intent.Key, name string) ([]byte, error) {
	if !s.KeptKeys {
		return nil, nil
	}
	plain := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(k.Scope)+len(k.Value)), uint64(len(k.Scope)))
	plain = append(append(plain, k.Scope...), k.Value...)
	sealed, err := s.Sealer.Seal(plain, boundKey(name))
	if err != nil {
		return nil, fmt.Errorf("idempotency: sealing a key: %w", err)
	}
	if len(sealed) >= maxSealedKey {
		return nil, nil
	}
	return append([]byte{sealedVersion}, sealed...), nil
}

// OpenKey reads a sealed key. It accepts only the key that the record has its name from.
func (s *Seals) OpenKey(stored []byte, name string) (intent.Key, error) {
	sealed, ok := bytes.CutPrefix(stored, []byte{sealedVersion})
	if !ok {
		return intent.Key{}, fmt.Errorf("%w: its key is of version %d", store.ErrUnreadableHere, stored[0])
	}
	plain, err := s.Sealer.Open(sealed, boundKey(name))
	if err != nil {
		return intent.Key{}, opened(err)
	}
	scope, n := binary.Uvarint(plain)
	if n <= 0 || scope > uint64(len(plain)-n) {
		return intent.Key{}, fmt.Errorf("%w: its key is cut off", store.ErrCorrupt)
	}
	k := intent.Key{Scope: string(plain[n : n+int(scope)]), Value: string(plain[n+int(scope):])}
	if k.Name() != name {
		return intent.Key{}, fmt.Errorf("%w: its key is that of another record", store.ErrCorrupt)
	}
	return k, nil
}

// boundKey returns the data that a sealed key is bound to. No answer and no step is bound to it.
func boundKey(name string) []byte { return append([]byte("key\x01"), name...) }
