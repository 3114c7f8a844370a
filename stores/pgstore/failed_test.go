package pgstore_test

import (
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A function ignores that a statement has failed. PostgreSQL commits nothing then, and the error says so. A
// handler that ignores that error too claims a row that is not there.
func TestFailedStatementThatTheFunctionIgnores(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		for _, says := range []int{http.StatusCreated, http.StatusServiceUnavailable, http.StatusUnprocessableEntity} {
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				err := inTx(s, r.Context(), level, func(exec execer) error {
					require.NoError(t, s.insert(r.Context(), exec))
					require.Error(t, exec(r.Context(), "SELECT 1/0"))
					return nil
				})
				require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
				require.ErrorContains(t, err, "savepoint")
				w.WriteHeader(says)
			})
			got := s.Do(t, guardtest.Call{Key: "k"})
			if says == http.StatusCreated {
				guardtest.RequireProblem(t, got, http.StatusInternalServerError, problem.CannotCommit)
			} else {
				require.Equal(t, says, got.Status)
			}
			require.Equal(t, says == http.StatusUnprocessableEntity, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
			require.Zero(t, s.rows(t, "k"))
		}
	})
}
