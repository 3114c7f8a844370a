package storefaults

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A full store refuses a further attempt as it refuses a new key. A route that fails open runs the new
// key, and not the other: the steps of its last attempt would be taken again. A store that cannot be asked
// for its records may have one of any key.
func TestFullStoreDoesNotOpenAKeyThatItHas(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]bool{"asked": true, "cannot be asked": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps, large := 0, false
			memory := idempotency.NewMemoryStore(idempotency.WithMaxBytes(4000))
			var s idempotency.Store = memory
			if !asked {
				s = struct {
					idempotency.Store
					store.StepStore
				}{memory, memory}
			}
			g := guardtest.NewGuard(t, s, idempotency.WithFailOpen(true))
			server := guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if large {
					_, _ = w.Write(make([]byte, 3400))
					return
				}
				_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
					steps++
					return 1, nil
				})
				w.WriteHeader(http.StatusInternalServerError)
			})))
			require.Equal(t, http.StatusInternalServerError, server.Do(t, guardtest.Call{Key: "a"}).Status)
			large = true
			require.Equal(t, http.StatusOK, server.Do(t, guardtest.Call{Key: "b"}).Status)
			require.True(t, server.Do(t, guardtest.Call{Key: "b"}).Replayed())
			large = false
			guardtest.RequireProblem(t, server.Do(t, guardtest.Call{Key: "a"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			require.Equal(t, 1, steps)
			unknown := server.Do(t, guardtest.Call{Key: "new"})
			if !asked {
				guardtest.RequireProblem(t, unknown, http.StatusServiceUnavailable, problem.StoreUnavailable)
				return
			}
			require.Equal(t, http.StatusInternalServerError, unknown.Status)
			require.Equal(t, 2, steps)
		})
	}
}
