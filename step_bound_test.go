package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A store that hangs keeps a step no longer than it keeps the end of a run.
func TestStepThatCannotBeRecordedEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := guardtest.NewStepFaultStore()
		store.On("step", guardtest.Always(guardtest.Hang))
		var took time.Duration
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			start := time.Now()
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			took = time.Since(start)
			var lost *idempotency.NotRecordedError
			if !errors.As(err, &lost) {
				t.Error(err)
			}
		})))
		s.Do(t, guardtest.Call{Key: "k"})
		require.LessOrEqual(t, took, 2*time.Second)
		require.Equal(t, 2, store.Count("step"))
	})
}

// A step whose lease ends while its mark is being recorded is not begun, and the mark is taken
// away.
func TestStepIsNotBegunByAMarkThatTookTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := guardtest.NewStepFaultStore()
		store.On("renew", guardtest.Always(guardtest.Hang))
		store.On("step", guardtest.First(1, guardtest.Hang))
		ran := 0
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, store, idempotency.WithLease(3*time.Second)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				op, _ := idempotency.FromContext(r.Context())
				if op.Attempt() == 1 {
					time.Sleep(2 * time.Second)
				}
				_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
					ran++
					return op.Attempt(), nil
				}, idempotency.AtMostOnce())
				if errors.Is(err, idempotency.ErrLeaseLost) {
					w.WriteHeader(http.StatusInternalServerError)
				}
			})))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Zero(t, ran)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, ran)
	})
}
