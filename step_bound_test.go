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
)

// A store that hangs keeps a step no longer than it keeps the end of a run.
func TestStepThatCannotBeRecordedEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStepFaultStore()
		store.on("step", always(hang))
		var took time.Duration
		s := serveRecorder(t, newGuard(t, store).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			start := time.Now()
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			took = time.Since(start)
			var lost *idempotency.NotRecordedError
			if !errors.As(err, &lost) {
				t.Error(err)
			}
		})))
		s.do(t, call{key: "k"})
		require.LessOrEqual(t, took, 2*time.Second)
		require.Equal(t, 2, store.count("step"))
	})
}

// A step whose lease ends while its mark is being recorded is not begun, and the mark is taken
// away.
func TestStepIsNotBegunByAMarkThatTookTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newStepFaultStore()
		store.on("renew", always(hang))
		store.on("step", first(1, hang))
		ran := 0
		s := serveRecorder(t, newGuard(t, store, idempotency.WithLease(3*time.Second)).Handler(
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
		require.Equal(t, http.StatusInternalServerError, s.do(t, call{key: "k"}).status)
		require.Zero(t, ran)
		require.Equal(t, http.StatusOK, s.do(t, call{key: "k"}).status)
		require.Equal(t, 1, ran)
	})
}
