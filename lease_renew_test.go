package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// Renewals that fail are tried again within the lease, so that a store that is away for
// less than that costs nobody the claim.
func TestRenewalIsTriedAgainWithinTheLease(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"refused": refuse, "reply lost": loseReply, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shared := idempotency.NewMemoryStore()
				var valid, invalid int
				a := newProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					op, _ := idempotency.FromContext(r.Context())
					for range 600 {
						if op.Valid() && r.Context().Err() == nil {
							valid++
						} else {
							invalid++
						}
						time.Sleep(time.Second)
					}
					_, _ = io.WriteString(w, "slow")
				}))
				b := newProcess(t, shared, answering(0, "overtaken"))
				done := a.start(t, call{key: "k"})
				go func() { // down for 12 seconds of each half minute, from before a renewal is due
					for range 18 {
						time.Sleep(9 * time.Second)
						a.store.on("renew", always(f))
						time.Sleep(12 * time.Second)
						a.store.heal()
						time.Sleep(9 * time.Second)
					}
				}()
				for range 60 {
					requireProblem(t, b.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
					time.Sleep(9 * time.Second)
				}
				require.Equal(t, "slow", (<-done).body)
				require.Zero(t, invalid)
				require.Equal(t, 600, valid)
				require.NotContains(t, a.events.kinds(), idempotency.EventLeaseLost)
			})
		})
	}
}

// A run that cannot reach the store learns in time that its claim is no longer sure:
// Valid is false a tenth before the lease ends, and the context is cancelled before
// another can have taken over.
func TestLeaseIsLostWhenTheStoreStaysAway(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]func(left time.Duration) fault{
		"refused": func(time.Duration) fault { return refuse },
		"hanging": func(time.Duration) fault { return hang },
		"refused, and hanging in the end": func(left time.Duration) fault {
			if left > 0 {
				return refuse
			}
			return hang
		},
	} {
		for _, lease := range []time.Duration{100 * time.Millisecond, 3 * time.Second, leaseTime, time.Hour} {
			t.Run(name+" "+lease.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					sure := lease - lease/10
					p := newProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						op, _ := idempotency.FromContext(r.Context())
						start := time.Now()
						time.Sleep(sure - time.Nanosecond)
						if !op.Valid() || r.Context().Err() != nil {
							t.Error("lost before its time")
						}
						time.Sleep(time.Nanosecond)
						if op.Valid() {
							t.Error("valid in the last tenth of the lease")
						}
						<-r.Context().Done()
						if took := time.Since(start); took > sure+time.Millisecond {
							t.Errorf("cancelled after %v", took)
						}
						if cause := context.Cause(r.Context()); !errors.Is(cause, idempotency.ErrLeaseLost) {
							t.Errorf("cause %v", cause)
						}
						w.WriteHeader(http.StatusServiceUnavailable)
					}), idempotency.WithLease(lease))
					end := time.Now().Add(sure)
					p.store.on("renew", func(int) fault { return f(time.Until(end)) })
					require.Equal(t, http.StatusServiceUnavailable, p.do(t, call{key: "k"}).status)
					synctest.Wait() // the event comes after the cancellation
					require.Contains(t, p.events.kinds(), idempotency.EventLeaseLost)
					p.requireQuiet(t)
				})
			})
		}
	}
}

// As long as the lease is sure it is worth trying: the pauses between the tries do not
// grow over the time that is left.
func TestLeaseIsKeptWhenTheStoreComesBackInTime(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 6 * time.Second, leaseTime, time.Hour} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newProcess(t, idempotency.NewMemoryStore(), answering(2*lease, "done"), idempotency.WithLease(lease))
				p.store.on("renew", always(refuse))
				time.AfterFunc(lease-lease/10-lease/20, p.store.heal)
				require.Equal(t, "done", p.do(t, call{key: "k"}).body)
				require.NotContains(t, p.events.kinds(), idempotency.EventLeaseLost)
			})
		})
	}
}

// A reply that comes late says only that the lease began at some time since the call was
// sent. What is sure is counted from there.
func TestSureTimeIsCountedFromSending(t *testing.T) {
	t.Parallel()
	slow := func(_ context.Context, proceed func() error) error {
		err := proceed()
		time.Sleep(time.Second)
		return err
	}
	for op, sent := range map[string]time.Duration{"claim": 0, "renew": leaseTime / 3} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(sent + leaseTime - leaseTime/10)
				p := newProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					op, _ := idempotency.FromContext(r.Context())
					w.WriteHeader(http.StatusCreated)
					time.Sleep(time.Until(end) - time.Nanosecond)
					if !op.Valid() {
						t.Error("lost before its time")
					}
					time.Sleep(time.Nanosecond)
					if op.Valid() {
						t.Error("valid in the last tenth of the lease")
					}
				}))
				p.store.on("renew", always(refuse))
				p.store.on(op, func(n int) fault {
					if n == 1 {
						return slow
					}
					return refuse
				})
				require.Equal(t, http.StatusCreated, p.do(t, call{key: "k"}).status)
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
		time.Sleep(leaseTime / 2)
		requireProblem(t, b.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
		require.Equal(t, "slow", (<-done).body)
		require.Zero(t, eager.runs.Load())
	})
}

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
		requireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		p.requireQuiet(t)
	})
}
