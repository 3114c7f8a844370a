package answer_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
)

func TestLocationOfAnAnswerThatIsNotKeptIsBounded(t *testing.T) {
	t.Parallel()
	for length, kept := range map[int]bool{10: true, 80: true, 100: false, 2000: false} {
		a := answer.NotKept(http.StatusCreated, []string{strings.Repeat("x", length)}, 100)
		require.Equal(t, kept, a.Location() != "", length)
	}
	long := []string{strings.Repeat("x", 3<<10)}
	a := answer.NotKept(http.StatusCreated, long, 1<<20)
	require.Empty(t, a.Location())
}
