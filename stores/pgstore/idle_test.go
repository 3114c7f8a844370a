package pgstore_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// The server ends a transaction that waits for its handler for too long. Nothing has happened then,
// and another attempt may be faster.
func TestTransactionThatIsIdleForTooLong(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		slow := true
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			err := inTx(s, r.Context(), level, func(exec execer) error {
				if err := errors.Join(
					exec(r.Context(), "SET LOCAL application_name = '"+s.table+"'"),
					s.insert(r.Context(), exec),
				); err != nil {
					return err
				}
				return exec(r.Context(), "SET LOCAL idle_in_transaction_session_timeout = '50ms'")
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if slow {
				slow = false
				s.waitForEnd(t)
			}
			w.WriteHeader(http.StatusCreated)
		}, idempotency.WithRecovery(idempotency.Hold))
		first := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, first, http.StatusServiceUnavailable, problem.RolledBack)
		require.Zero(t, s.rows(t, "k"))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t, "k"))
	})
}

// waitForEnd waits until the transaction that has set the name of the table has ended.
func (s *shop) waitForEnd(t testing.TB) {
	t.Helper()
	for ctx := context.Background(); ; time.Sleep(10 * time.Millisecond) { // a poll
		var n int
		err := s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", s.table).Scan(&n)
		if err != nil || n == 0 {
			if err != nil {
				t.Error(err)
			}
			return
		}
	}
}
