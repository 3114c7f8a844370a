package truncate_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/client/internal/truncate"
)

func TestText(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("x", truncate.Max)} {
		require.Equal(t, s, truncate.Text(s))
	}
	require.Equal(t, strings.Repeat("x", truncate.Max)+"… (2049 bytes)", truncate.Text(strings.Repeat("x", truncate.Max+1)))
	cut := truncate.Text("a" + strings.Repeat("ä", truncate.Max))
	require.True(t, utf8.ValidString(cut), "no rune is cut")
	require.Equal(t, "a"+strings.Repeat("ä", truncate.Max/2-1)+"… (4097 bytes)", cut)
}

func TestError(t *testing.T) {
	require.NoError(t, truncate.Error(nil))
	require.Equal(t, io.EOF, truncate.Error(io.EOF), "a short one stays itself")
	long := errors.Join(errors.New(strings.Repeat("x", truncate.Max)), io.EOF)
	got := truncate.Error(long)
	require.Equal(t, truncate.Text(long.Error()), got.Error())
	require.ErrorIs(t, got, io.EOF)
}
