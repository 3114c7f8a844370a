package pgstore_test

import (
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/internal/guardtest"
)

// A transaction inside that of a run can do nothing when the handler has said that the outer one is to
// be committed. Its rollback, deferred as everywhere, would take rows back that the answer tells of.
func TestInnerTransactionEndsWithTheOuter(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		tx, err := s.store.Begin(ctx, pgx.TxOptions{})
		if err != nil {
			panic(err)
		}
		inner, err := tx.Begin(ctx)
		if err != nil {
			panic(err)
		}
		defer func() {
			for _, end := range []error{inner.Rollback(ctx), inner.Commit(ctx)} {
				if end != pgx.ErrTxClosed { //nolint:errorlint // as pgx returns it
					panic(end)
				}
			}
		}()
		for i := range 2 { // what the inner one gives up by itself is gone
			again, err := inner.Begin(ctx)
			if err != nil {
				panic(err)
			}
			if _, err := again.Exec(ctx, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ('k', $1, 1)", int64(i)); err != nil {
				panic(err)
			}
			if i == 0 {
				err = again.Rollback(ctx)
			} else {
				err = again.Commit(ctx)
			}
			if err != nil {
				panic(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	var rows, amount int
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT count(*), max(amount) FROM "+s.table).Scan(&rows, &amount))
	require.Equal(t, []int{1, 1}, []int{rows, amount})
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
}
