package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// A resolveStore lets a test do something right after a key has been settled by hand.
type resolveStore struct {
	*idempotency.MemoryStore
	then func()
}

func (s *resolveStore) Resolve(ctx context.Context, key string, attempt int, answer []byte, ttl time.Duration) error {
	err := s.MemoryStore.Resolve(ctx, key, attempt, answer, ttl)
	if then := s.then; then != nil {
		s.then = nil
		then()
	}
	return err
}

// Two have found out at once that a step did not happen. The slower of them takes no marks
// away, and no values, that are those of a run which the faster one has let begin.
func TestSlowResolutionTakesNothingFromTheNextRun(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]error{"done": nil, "begun": errors.New("no answer")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &resolveStore{MemoryStore: idempotency.NewMemoryStore()}
			guard := newGuard(t, store)
			began := 0
			s := serveRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
					if began++; began == 1 {
						return 0, errors.New("no answer")
					}
					return began, done
				}, idempotency.AtMostOnce())
				w.WriteHeader(http.StatusInternalServerError)
			})))
			s.do(t, call{key: "k"})
			hold(t, s)
			didNotHappen := idempotency.Resolution{Outcome: idempotency.NotExecuted}
			store.then = func() {
				require.NoError(t, guard.Resolve(t.Context(), heldKey, didNotHappen))
				s.do(t, call{key: "k"})
			}
			require.ErrorIs(t, guard.Resolve(t.Context(), heldKey, didNotHappen), idempotency.ErrChanged)
			s.do(t, call{key: "k"})
			require.Equal(t, 2, began)
		})
	}
}
