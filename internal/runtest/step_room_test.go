package runtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A record has room for so many steps, whatever a request has asked for.
func TestStepsAreBounded(t *testing.T) {
	// attempts lets one key run in turn, each run with so many new steps of a value, and returns how many have run.
	attempts := func(t *testing.T, value string, steps ...int) (ran int) {
		attempt, first := 0, 0
		h := func(w http.ResponseWriter, r *http.Request) {
			n := steps[attempt]
			attempt++
			for i := range n {
				before := ran
				_, err := idempotency.Step(r.Context(), fmt.Sprint("step ", first+i), func(context.Context) (string, error) {
					ran++
					return value, nil
				})
				if ran == before {
					assert.ErrorIs(t, err, idempotency.ErrStepMisuse)
				} else {
					assert.NoError(t, err)
				}
			}
			first += n
			if first > n { // what is recorded is found, although there is no room for more
				_, err := idempotency.Step(r.Context(), "step 0", func(context.Context) (string, error) { panic("runs again") })
				assert.NoError(t, err)
			}
			w.WriteHeader(http.StatusInternalServerError)
		}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(h)))
		for range steps {
			s.Do(t, guardtest.Call{Key: "k"})
		}
		return ran
	}
	large := strings.Repeat("x", 60<<10)
	t.Run("in number", func(t *testing.T) {
		require.Equal(t, 1000, attempts(t, "", 1100))
		require.Equal(t, 1000, attempts(t, "", 900, 200, 10))
	})
	t.Run("in bytes", func(t *testing.T) {
		require.Equal(t, 9, attempts(t, large, 100))
	})
	t.Run("over attempts", func(t *testing.T) {
		require.Equal(t, 9, attempts(t, large, 5, 5, 5))
	})
	guardtest.Bubble(t, "at once", func(t *testing.T) {
		var mu sync.Mutex
		now, most, late := 0, 0, error(nil)
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			now += n
			most = max(most, now)
		}
		h := func(_ http.ResponseWriter, r *http.Request) {
			var all sync.WaitGroup
			for i := range 20 {
				all.Go(func() {
					_, err := idempotency.Step(r.Context(), fmt.Sprint("step ", i), func(context.Context) (int, error) {
						count(1)
						defer count(-1)
						time.Sleep(time.Second)
						return i, nil
					})
					assert.NoError(t, err)
				})
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
			defer cancel()
			_, late = idempotency.Step(ctx, "late", func(context.Context) (int, error) { panic("has no turn") })
			all.Wait()
		}
		guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(h))).Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, 8, most)
		require.ErrorIs(t, late, context.DeadlineExceeded)
	})
}
