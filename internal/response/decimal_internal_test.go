package response

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecimalsAreThoseOfStrconv(t *testing.T) {
	t.Parallel()
	for n := range 20_000 {
		require.Equal(t, strconv.Itoa(n), decimal(n))
	}
}
