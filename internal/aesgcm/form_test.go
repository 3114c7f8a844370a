package aesgcm_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/aesgcm"
	"example.com/idempotency/internal/formtest"
)

// reference seals as the form says: four bytes of a digest of the key, the nonce, the ciphertext and its tag.
func reference(t *testing.T, key, nonce, message, bound []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	id := sha256.Sum256(append([]byte("idempotency sealer key id\x00"), key...))
	return gcm.Seal(append(id[:4:4], nonce...), nonce, message, bound)
}

// The form has no number. Another one derives other IDs from the keys, and so is sealed with an unknown key.
func TestStoredFormOfASealedMessage(t *testing.T) {
	s, message, bound := newSealer(t, 1), []byte("message"), []byte("bound")
	formtest.Check(t, "aesgcm", 1, formtest.Case{
		Name:   "message",
		Encode: func() []byte { return reference(t, key(1), bytes.Repeat([]byte{7}, 12), message, bound) },
		Decode: func(sealed []byte) (any, error) { return s.Open(sealed, bound) },
		Want:   message,
	})
	sealed, err := s.Seal(message, bound)
	require.NoError(t, err)
	require.Equal(t, reference(t, key(1), sealed[4:16], message, bound), sealed)
	_, err = s.Open(append([]byte{sealed[0] ^ 1}, sealed[1:]...), bound)
	require.ErrorIs(t, err, aesgcm.ErrUnknownKey)
}
