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

// A renewal that the store refuses says for certain that the claim is another's, or nobody's:
// the run is told at once, and not when its lease would have ended.
func TestRefusedRenewalTellsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			start := time.Now()
			<-r.Context().Done()
			if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLeaseLost) {
				t.Errorf("cause %v", cause)
			}
			if took := time.Since(start); took != leaseTime/3 || op.Valid() {
				t.Errorf("told after %v, valid %v", took, op.Valid())
			}
		}))
		done := p.start(t, call{key: "k"})
		p.store.replace(idempotency.NewMemoryStore()) // it knows of no claim
		requireProblem(t, <-done, http.StatusConflict, idempotency.CodeInFlight)
		p.requireQuiet(t)
	})
}

// The store counts the lease from the moment at which it executes a call. All that is known
// of that moment is that it was after the call was sent: counted from the reply, a run
// would believe in its lease for longer than it lasts.
func TestLeaseCountsFromTheCall(t *testing.T) {
	t.Parallel()
	const slow = 1900 * time.Millisecond // and in time all the same
	slowly := func(_ context.Context, proceed func() error) error {
		defer time.Sleep(slow)
		return proceed()
	}
	for op, sent := range map[string]time.Duration{"claim": 0, "renew": leaseTime / 3} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				p := newProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					op, _ := idempotency.FromContext(r.Context())
					end := begin.Add(sent + leaseTime - leaseTime/10)
					time.Sleep(time.Until(end) - time.Nanosecond)
					if !op.Valid() || r.Context().Err() != nil {
						t.Error("lost before its time")
					}
					time.Sleep(time.Millisecond + time.Nanosecond)
					if op.Valid() || r.Context().Err() == nil {
						t.Error("valid in the last tenth of the lease")
					}
				}))
				p.store.on("renew", always(refuse))
				p.store.on(op, func(n int) fault {
					if n == 1 {
						return slowly
					}
					return refuse
				})
				p.do(t, call{key: "k"})
			})
		})
	}
}

// A run that was told to stop and goes on all the same is still not overtaken if the store
// comes back while the lease lasts.
func TestLostLeaseIsStillRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		eager := answering(0, "eager")
		a, b := newProcess(t, shared, answering(2*leaseTime, "slow")), newProcess(t, shared, eager)
		a.store.on("renew", always(refuse))
		done := a.start(t, call{key: "k"})
		time.Sleep(leaseTime - leaseTime/10 + 100*time.Millisecond)
		require.Contains(t, a.events.kinds(), idempotency.EventLeaseLost)
		a.store.heal()
		time.Sleep(leaseTime / 5) // the lease would have ended
		requireProblem(t, b.do(t, call{key: "k"}), http.StatusConflict, idempotency.CodeInFlight)
		require.Equal(t, "slow", (<-done).body)
		require.Zero(t, eager.runs.Load())
	})
}
