package token_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/token"
)

func TestTokens(t *testing.T) {
	const delimiters = `"(),/:;<=>?@[\]{}`
	for c := range 256 {
		visible := c > ' ' && c < 0x7f
		want := visible && !strings.ContainsRune(delimiters, rune(c))
		require.Equal(t, want, token.IsChar(byte(c)), "%q", c)
		require.Equal(t, want, token.Is("a"+string([]byte{byte(c)})), "%q", c)
	}
	require.False(t, token.Is(""))
}
