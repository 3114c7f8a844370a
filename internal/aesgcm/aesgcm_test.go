package aesgcm_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/aesgcm"
)

func key(n byte) []byte { return bytes.Repeat([]byte{n}, aesgcm.KeySize) }

func newSealer(t *testing.T, current byte, former ...byte) *aesgcm.Sealer {
	t.Helper()
	keys := make([][]byte, 0, len(former))
	for _, n := range former {
		keys = append(keys, key(n))
	}
	s, err := aesgcm.New(key(current), keys...)
	require.NoError(t, err)
	return s
}

func TestSealerOpensOnlyWhatItSealed(t *testing.T) {
	s := newSealer(t, 1)
	for _, message := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("long "), 1000)} {
		sealed, err := s.Seal(message, []byte("bound"))
		require.NoError(t, err)
		opened, err := s.Open(sealed, []byte("bound"))
		require.NoError(t, err)
		require.Equal(t, string(message), string(opened))

		again, err := s.Seal(message, []byte("bound"))
		require.NoError(t, err)
		require.NotEqual(t, sealed, again, "a nonce was used twice")

		_, err = s.Open(sealed, []byte("other"))
		require.Error(t, err)
		for n := range min(len(sealed), 100) {
			_, err = s.Open(sealed[:n], []byte("bound"))
			require.Error(t, err, "cut to %d bytes", n)
			altered := bytes.Clone(sealed)
			altered[n] ^= 1
			_, err = s.Open(altered, []byte("bound"))
			require.Error(t, err, "byte %d altered", n)
		}
	}
}

func TestKeysRotate(t *testing.T) {
	old, err := newSealer(t, 1).Seal([]byte("message"), nil)
	require.NoError(t, err)
	rotated := newSealer(t, 2, 1)
	opened, err := rotated.Open(old, nil)
	require.NoError(t, err)
	require.Equal(t, "message", string(opened))

	fresh, err := rotated.Seal([]byte("message"), nil)
	require.NoError(t, err)
	_, err = newSealer(t, 1).Open(fresh, nil)
	require.Error(t, err, "sealed with the former key")
	_, err = newSealer(t, 2).Open(fresh, nil)
	require.NoError(t, err)
}
