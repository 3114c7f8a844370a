package txtest

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file is about transactions that are ended past their store, which finds it out late, or not ended.

// A handler ends its transaction after it has wished for the commit. Its answer tells of rows that
// may be gone, so nobody sees it. The outcome is unknown.
func TestTransactionEndedAfterTheWishIsUnknown(t *testing.T) {
	for i := range 4 {
		commits, status := i&1 == 0, []int{http.StatusCreated, http.StatusInternalServerError}[i/2]
		for recovery, next := range map[idempotency.Recovery]int{idempotency.Hold: http.StatusConflict, idempotency.Rerun: http.StatusCreated} {
			s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
				tx, err := s.Begin(r.Context())
				require.NoError(t, err)
				require.NoError(t, errors.Join(insert(tx), tx.Commit()))
				tx.EndAlone(commits)
				w.WriteHeader(status)
			}, idempotency.WithRecovery(recovery))
			rows := map[bool]int{true: 1}[commits]
			got := s.Do(t, guardtest.Call{Key: "k"})
			if recovery == idempotency.Hold {
				guardtest.RequireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
			} else {
				guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.NoAnswer)
			}
			require.Len(t, s.store.Rows(), rows)
			require.Equal(t, 1, s.events.Count(event.CommittedAlone))
			require.Equal(t, recovery == idempotency.Hold, s.events.Count(event.Held) == 1)
			for _, e := range s.events.All() {
				require.True(t, e.Kind != event.Held || e.Cause == event.CauseCommit, "%s", e.Cause)
			}
			if info := guardtest.Lookup(t, guardtest.NewGuard(t, s.store.Behind), guardtest.HeldKey); recovery == idempotency.Hold {
				require.Equal(t, event.CauseCommit, info.Cause)
			}
			second := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, next, second.Status)
			require.False(t, second.Replayed())
		}
	}
}

// A function of a step ends its transaction. The step may have happened, however the function has
// left: its key is held, and a permanent error is not recorded.
func TestStepEndedAloneIsUnknown(t *testing.T) {
	for name, fails := range map[string]error{"success": nil, "error": errDeclined, "permanent error": idempotency.Permanent(errDeclined)} {
		for _, transaction := range []bool{false, true} {
			s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
				_, err := guardtest.StepTx(r.Context(), s, "charge", func(_ context.Context, tx *guardtest.Tx) (int, error) {
					require.NoError(t, insert(tx))
					tx.EndAlone(true)
					return 0, fails
				})
				require.ErrorIs(t, err, idempotency.ErrCommitUnknown, name)
				require.ErrorIs(t, err, store.ErrCommittedAlone, name)
				w.WriteHeader(http.StatusTooManyRequests)
			}, idempotency.WithTransaction(transaction))
			for range 2 {
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
			}
			require.Len(t, s.store.Rows(), 1, name)
		}
	}
}

// A handler ignores that its transaction could not be committed. A success claims rows that are not there; a
// refusal does not.
func TestSuccessAfterARefusedCommitIsNotBelieved(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusNotFound, http.StatusInternalServerError} {
		for _, again := range []bool{false, true} {
			s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
				tx, err := s.Begin(r.Context())
				require.NoError(t, err)
				tx.Refuse()
				if again {
					charge(s, w, r)
					return
				}
				w.WriteHeader(status)
			}, idempotency.WithRecovery(idempotency.Hold))
			got := s.Do(t, guardtest.Call{Key: "k"})
			switch {
			case again:
				require.Equal(t, http.StatusCreated, got.Status)
			case status == http.StatusCreated:
				guardtest.RequireProblem(t, got, http.StatusInternalServerError, problem.CannotCommit)
			default:
				require.Equal(t, status, got.Status)
			}
			next := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, again || status == http.StatusNotFound, next.Replayed(), "%d", status)
			require.Equal(t, again || status != http.StatusNotFound, len(s.store.Rows()) == 1)
		}
	}
}

// A transaction that the handler has forgotten is rolled back, whatever it answers, and that is reported.
func TestForgottenTransactionIsReported(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusNotFound, http.StatusInternalServerError, 0} {
		s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			tx, err := s.Begin(r.Context())
			require.NoError(t, errors.Join(err, insert(tx)))
			if status == 0 {
				panic(guardtest.Boom)
			}
			w.WriteHeader(status)
		}, idempotency.WithRecovery(idempotency.Hold))
		_, _ = s.TryAlone(t.Context(), guardtest.Call{Key: "k"})
		require.Empty(t, s.store.Rows())
		require.Equal(t, 1, s.store.Count("rollback"))
		require.Equal(t, 1, s.events.Count(event.LeftOpen))
		require.Zero(t, s.events.Count(event.Held))
		next := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, status == http.StatusNotFound, next.Replayed(), "%d", status)
		require.Equal(t, status != http.StatusNotFound, next.Status == http.StatusCreated, "%d", status)
	}
}
