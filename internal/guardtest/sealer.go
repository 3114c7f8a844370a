package guardtest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// SealingKey returns one key of many, which n chooses.
func SealingKey(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

// NewSealer returns a sealer with a current key and former ones.
func NewSealer(t *testing.T, current byte, former ...byte) idempotency.Sealer {
	t.Helper()
	keys := make([][]byte, 0, len(former))
	for _, n := range former {
		keys = append(keys, SealingKey(n))
	}
	s, err := idempotency.NewSealer(SealingKey(current), keys...)
	require.NoError(t, err)
	return s
}

// A FailingSealer seals nothing, and opens what the sealer in it opens.
type FailingSealer struct{ idempotency.Sealer }

// Seal fails.
func (FailingSealer) Seal([]byte, []byte) ([]byte, error) { return nil, errors.New("no key today") }
