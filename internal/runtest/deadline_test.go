package runtest

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A handler gives its deadline to a connection, by which it is stopped: it has not asked its context for more. What it says then is
// no answer, also if the connection notices before the context does.
func TestDeadlineThatWasHandedOnStopsTheRun(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		for _, status := range []int{0, http.StatusTooManyRequests, http.StatusUnprocessableEntity} {
			guardtest.Bubble(t, strconv.Itoa(status), func(t *testing.T) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
					if run > 1 {
						return
					}
					deadline, _ := r.Context().Deadline()
					time.Sleep(time.Until(deadline)) // as a read from a connection with that deadline
					if status != 0 {
						w.WriteHeader(status)
					}
				}}
				guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h)
				s := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, cancel := context.WithTimeout(r.Context(), time.Second)
					defer cancel()
					guarded.ServeHTTP(w, r.WithContext(ctx))
				}))
				want := map[guardtest.Fate]problem.Code{guardtest.RunsNext: problem.NoAnswer, guardtest.IsHeld: problem.OutcomeUnknown}[unknown]
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), problem.New(want).Status, want)
				guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
			})
		}
	})
}
