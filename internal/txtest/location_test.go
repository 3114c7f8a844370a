package txtest

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// The handler has committed by itself, and its answer is too large: its client learns where the
// result is, as a retry does.
func TestClientOfALargeAnswerLearnsItsLocation(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		tx, err := s.Begin(r.Context())
		require.NoError(t, err)
		require.NoError(t, errors.Join(insert(tx), tx.CommitAlone()))
		w.Header().Set("Location", "/charges/7")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(make([]byte, 3000))
	})
	for range 2 {
		got := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
		require.Equal(t, http.StatusCreated, got.Problem.OriginalStatus)
		require.Equal(t, "/charges/7", got.Problem.OriginalLocation)
	}
}
