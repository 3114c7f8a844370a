package pgstore_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore"
)

// step inserts a row as a step, and returns the attempt that has done it.
func (s *shop) step(ctx context.Context, level pgx.TxIsoLevel, after func() error) (int, error) {
	return pgstore.StepTx(ctx, s.store, "charge", pgx.TxOptions{IsoLevel: level}, func(ctx context.Context, tx pgx.Tx) (int, error) {
		return guardtest.Op(ctx).Attempt(), errors.Join(s.insert(ctx, pgxExecer(tx)), after())
	})
}

func nothing() error { return nil }

// The row and the record of the step are one commit, and the next attempt finds both. A step that fails has left nothing,
// and the next attempt takes it.
func TestStepCommitsWithItsRow(t *testing.T) {
	for _, level := range levels {
		for name, fails := range map[string]error{"done": nil, "failed": errors.New("refused")} {
			t.Run(level+" "+name, func(t *testing.T) {
				t.Parallel()
				rows := map[bool]int{true: 1}[fails == nil] // of the first attempt
				var attempts atomic.Int64
				s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
					if attempts.Add(1) == 1 {
						_, err := s.step(r.Context(), pgx.TxIsoLevel(level), func() error { return fails })
						require.ErrorIs(t, err, fails)
						w.WriteHeader(http.StatusInternalServerError)
						return
					}
					by, err := s.step(r.Context(), pgx.TxIsoLevel(level), nothing)
					require.NoError(t, err)
					require.Equal(t, 2-rows, by)
					w.WriteHeader(http.StatusCreated)
				}, idempotency.WithTransaction(false))
				require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Equal(t, rows, s.rows(t, "k"))
				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Equal(t, 1, s.rows(t, "k"))
			})
		}
	}
}

// A function may roll back and say nothing of it. Then the step has not happened, and is not recorded.
func TestStepThatRollsBackInSilence(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		_, err := pgstore.StepTx(r.Context(), s.store, "undone", pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) (string, error) {
			return "charged", tx.Rollback(ctx)
		})
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = s.step(r.Context(), pgx.ReadCommitted, nothing)
		require.NoError(t, err)
		w.WriteHeader(http.StatusCreated)
	}, idempotency.WithTransaction(false))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 1, s.rows(t, "k"))
}

// A run that was overtaken while its step ran cannot commit it.
func TestStepOfAnOvertakenRun(t *testing.T) {
	t.Parallel()
	var overtaken *shop
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		_, err := s.step(r.Context(), pgx.ReadCommitted, func() error {
			overtaken.lose(t)
			return nil
		})
		require.ErrorIs(t, err, idempotency.ErrLeaseLost)
		w.WriteHeader(http.StatusInternalServerError)
	}, idempotency.WithTransaction(false))
	overtaken = s
	s.Do(t, guardtest.Call{Key: "k"})
	require.Zero(t, s.rows(t, "k"))
}

// lose gives the claim of the only record to another run.
func (s *shop) lose(t testing.TB) {
	t.Helper()
	tag, err := s.pool.Exec(context.Background(), "UPDATE "+s.records+` SET version = version + 1, attempt = attempt + 1,
		owner = decode('000102030405060708090a0b0c0d0e0f', 'hex')`)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
}

// The transaction of the answer does not commit either. Nobody is told that it did.
func TestTransactionOfAnOvertakenRun(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		if level != "read committed" {
			return // the transaction keeps its record locked
		}
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			charge(inTx, level)(s, w, r)
			s.lose(t)
		}, idempotency.WithLease(time.Minute))
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusConflict, got.Status, "%s", got.Body)
		require.Zero(t, s.rows(t, "k"))
	})
}
