package answer_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/answer"
)

func TestLocationOfAnAnswerThatIsNotKeptIsBounded(t *testing.T) {
	for length, kept := range map[int]bool{10: true, 2000: true, 2048: false, 3000: false} {
		a := answer.NotKept(http.StatusCreated, []string{strings.Repeat("x", length)})
		require.Equal(t, kept, a.Location() != "", length)
	}
}
