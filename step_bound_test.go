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
