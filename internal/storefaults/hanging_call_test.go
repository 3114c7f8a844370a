package storefaults

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

// A single call disappears, for example on a connection that a firewall has forgotten. It
// costs half of the time that the caller has. The next try succeeds: the step is recorded,
// or the run is settled in the foreground.
func TestOneHangingCallIsRepeatedInTime(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		want   guardtest.Fate
	}{
		"step":     {http.StatusCreated, guardtest.Replays},
		"complete": {http.StatusCreated, guardtest.Replays},
		"release":  {http.StatusTooManyRequests, guardtest.RunsNext},
		"hold":     {http.StatusBadGateway, guardtest.IsHeld},
	}
	for op, test := range tests {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, seen := guardtest.NewStepFaultStore(), &guardtest.Events{}
				store.On(op, guardtest.First(1, guardtest.Hang))
				guard := guardtest.NewGuard(t, store, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(seen.Observe))
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					if _, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
						t.Error(err)
					}
					if test.status == http.StatusTooManyRequests { // the status alone would not outvote the step
						op, _ := idempotency.FromContext(r.Context())
						op.SetOutcome(idempotency.NotExecuted)
					}
					w.WriteHeader(test.status)
				}}
				s := guardtest.ServeRecorder(t, guard.Handler(h))
				start := time.Now()
				require.Equal(t, test.status, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Less(t, time.Since(start), 1500*time.Millisecond)
				require.Zero(t, seen.Count(event.RecordingDelayed))
				guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, test.want)
			})
		})
	}
}

// The store has settled a run, but the reply was lost, so it refuses the next renewal. That
// is not a lost lease and must not be reported as one.
func TestSettledRunHasNotLostItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.On("complete", guardtest.Always(func(ctx context.Context, proceed func() error) error {
			_ = proceed()
			return guardtest.Hang(ctx, proceed)
		}))
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
		time.Sleep(guardtest.LeaseTime / 2)
		require.Equal(t, 1, p.Store.Count("renew"))
		p.Store.Heal()
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		require.Zero(t, p.Events.Count(event.LeaseLost))
		require.Equal(t, 1, p.Events.Count(event.RecordingDelayed))
	})
}
