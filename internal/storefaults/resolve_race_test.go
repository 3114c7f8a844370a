package storefaults

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A resolveStore lets a test do something right after a key has been settled by hand.
type resolveStore struct {
	*idempotency.MemoryStore
	then func()
}

func (s *resolveStore) Resolve(ctx context.Context, key string, attempt int, c *idempotency.Completion) error {
	err := s.MemoryStore.Resolve(ctx, key, attempt, c)
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
			guard := guardtest.NewGuard(t, store)
			began := 0
			s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
					if began++; began == 1 {
						return 0, errors.New("no answer")
					}
					return began, done
				}, idempotency.AtMostOnce())
				w.WriteHeader(http.StatusInternalServerError)
			})))
			s.Do(t, guardtest.Call{Key: "k"})
			hold(t, s)
			didNotHappen := idempotency.Resolution{Outcome: idempotency.NotExecuted}
			store.then = func() {
				require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, didNotHappen))
				s.Do(t, guardtest.Call{Key: "k"})
			}
			require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, didNotHappen), idempotency.ErrChanged)
			s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, 2, began)
		})
	}
}

// A guard that cannot read the marks of steps cannot take them away, and settles nothing: the
// next run would find them and be held again.
func TestMarksThatCannotBeReadAreNotResolved(t *testing.T) {
	t.Parallel()
	sealer, err := idempotency.NewSealer([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	store := idempotency.NewMemoryStore()
	guard := guardtest.NewGuard(t, store, idempotency.WithSealer(sealer))
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
			return 0, errors.New("no answer")
		}, idempotency.AtMostOnce())
		w.WriteHeader(http.StatusInternalServerError)
	})))
	s.Do(t, guardtest.Call{Key: "k"})
	hold(t, s)
	before, err := guard.Lookup(t.Context(), guardtest.HeldKey)
	require.NoError(t, err)
	didNotHappen := idempotency.Resolution{Outcome: idempotency.NotExecuted}
	require.ErrorIs(t, guardtest.NewGuard(t, store).Resolve(t.Context(), guardtest.HeldKey, didNotHappen), idempotency.ErrUnreadableHere)
	after, err := guard.Lookup(t.Context(), guardtest.HeldKey)
	require.NoError(t, err)
	require.Equal(t, before.State, after.State)
	require.Equal(t, before.Attempt, after.Attempt)
	require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, didNotHappen))
}

// hold leaves a key held.
func hold(t *testing.T, s *guardtest.Server) {
	t.Helper()
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
}
