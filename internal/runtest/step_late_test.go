package runtest

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A handler does not wait for a step that the store keeps waiting, and answers. The run is judged by what has begun until
// then, so nothing begins afterwards.
func TestNoStepBeginsAfterItsRun(t *testing.T) {
	t.Parallel()
	const slow = 50 * time.Millisecond
	for name, opts := range map[string][]idempotency.TaskOption{
		"at most once": {idempotency.AtMostOnce()}, "plain": nil, "found": nil,
	} {
		for recovery, policy := range map[string]idempotency.Recovery{"rerun": idempotency.Rerun, "hold": idempotency.Hold} {
			t.Run(name+", "+recovery, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					st := guardtest.NewStepFaultStore()
					late := guardtest.Always(func(_ context.Context, proceed func() error) error {
						defer time.Sleep(slow) // the reply is late
						return proceed()
					})
					st.On("step", late)
					st.On("renew", late)
					effects := 0
					errs := make(chan error, 1)
					h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						charge := func() error {
							_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { effects++; return 1, nil }, opts...)
							return err
						}
						if op, _ := idempotency.FromContext(r.Context()); name == "found" && op.Attempt() == 1 {
							errs <- charge()
							op.SetOutcome(idempotency.NotExecuted)
						} else {
							go func() {
								if name != "at most once" {
									time.Sleep(slow)
								}
								errs <- charge()
							}()
						}
						time.Sleep(slow / 2)
						w.WriteHeader(http.StatusTooManyRequests)
					})
					s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithRecovery(policy)).Handler(h))
					if name == "found" {
						s.Do(t, guardtest.Call{Key: "k"})
						require.NoError(t, <-errs)
					}
					before := effects
					got := s.Do(t, guardtest.Call{Key: "k"})
					switch {
					case name != "at most once": // nothing was done
						require.Equal(t, http.StatusTooManyRequests, got.Status)
						require.Empty(t, got.Header.Get("Idempotency-Error"))
					case policy == idempotency.Hold: // its mark says that it may have been
						require.Equal(t, "outcome-unknown", got.Header.Get("Idempotency-Error"))
					default:
						require.NotEmpty(t, got.Header.Get("Idempotency-Error"))
					}
					require.ErrorIs(t, <-errs, idempotency.ErrStepMisuse)
					require.Equal(t, before, effects)
				})
			})
		}
	}
}
