package idempotency_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// A single call that is swallowed, as by one connection that a firewall has forgotten,
// costs somebody who waits for it half of the time that there is. The next one succeeds:
// a step is recorded, and a run is settled in the foreground.
func TestOneHangingCallIsRepeatedInTime(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		status int
		want   fate
	}{
		"step":     {http.StatusCreated, replays},
		"complete": {http.StatusCreated, replays},
		"release":  {http.StatusTooManyRequests, runsNext},
		"hold":     {http.StatusBadGateway, isHeld},
	}
	for op, test := range tests {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, seen := newStepFaultStore(), &events{}
				store.on(op, first(1, hang))
				guard := newGuard(t, store, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(seen.observe))
				h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					if _, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
						t.Error(err)
					}
					w.WriteHeader(test.status)
				}}
				s := serveRecorder(t, guard.Handler(h))
				start := time.Now()
				require.Equal(t, test.status, s.do(t, call{key: "k"}).status)
				require.Less(t, time.Since(start), 1500*time.Millisecond)
				require.Zero(t, countKind(seen, idempotency.EventRecordingDelayed))
				requireFate(t, s, h, call{key: "k"}, test.want)
			})
		})
	}
}

// A run that is settled without hearing of it is refused its renewals. That is not the
// loss of a lease, which somebody would be alarmed by.
func TestSettledRunHasNotLostItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), answering(0, "done"))
		p.store.on("complete", always(func(ctx context.Context, proceed func() error) error {
			_ = proceed()
			return hang(ctx, proceed)
		}))
		require.Equal(t, "done", p.do(t, call{key: "k"}).body)
		time.Sleep(leaseTime / 2)
		require.Equal(t, 1, p.store.count("renew"))
		p.store.heal()
		require.NoError(t, p.guard.Shutdown(t.Context()))
		require.Zero(t, countKind(p.events, idempotency.EventLeaseLost))
		require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingDelayed))
	})
}
