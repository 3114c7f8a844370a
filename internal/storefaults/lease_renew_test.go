package storefaults

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A guard repeats failed renewals within the lease. A store that is away for less than that
// costs nobody the claim.
func TestRenewalIsTriedAgainWithinTheLease(t *testing.T) {
	guardtest.EachInBubble(t, map[string]guardtest.Fault{"refused": guardtest.Refuse, "reply lost": guardtest.LoseReply, "hanging": guardtest.Hang}, func(t *testing.T, f guardtest.Fault) {
		shared := idempotency.NewMemoryStore()
		var valid, invalid int
		a := guardtest.NewProcess(t, shared, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		b := guardtest.NewProcess(t, shared, guardtest.Answering(0, "overtaken"))
		done := a.Start(t, guardtest.Call{Key: "k"})
		go func() { // down for 12 seconds of each half minute, from before a renewal is due
			for range 18 {
				time.Sleep(9 * time.Second)
				a.Store.On("renew", guardtest.Always(f))
				time.Sleep(12 * time.Second)
				a.Store.Heal()
				time.Sleep(9 * time.Second)
			}
		}()
		for range 60 {
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
			time.Sleep(9 * time.Second)
		}
		require.Equal(t, "slow", (<-done).Body)
		require.Zero(t, invalid)
		require.Equal(t, 600, valid)
		require.NotContains(t, a.Events.Kinds(), event.LeaseLost)
	})
}

// A store may answer a renewal when the next one is due, or a little later. The run is renewed at once.
func TestRenewalThatTakesALongTimeIsNotTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		events := &guardtest.Events{}
		g, err := idempotency.New(lateStore{idempotency.NewMemoryStore(), lease/3 + time.Millisecond}, idempotency.SharedScope,
			idempotency.WithLease(lease), idempotency.WithObserver(events.Observe))
		require.NoError(t, err)
		srv := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Minute)
			assert.True(t, guardtest.Op(r.Context()).Valid())
		})))
		require.Equal(t, http.StatusOK, srv.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Zero(t, events.Count(event.LeaseLost))
		require.NoError(t, g.Shutdown(t.Context()))
	})
}

// A lateStore obeys its context, and has the result of a renewal when that ends.
type lateStore struct {
	idempotency.Store
	late time.Duration
}

func (lateStore) ObeysContext() bool { return true }

func (s lateStore) Renew(ctx context.Context, name string, o store.Owner) error {
	time.Sleep(s.late) // of the bubble
	return s.Store.Renew(context.WithoutCancel(ctx), name, o)
}

// A run that cannot reach the store learns in time that it may lose its claim: Valid turns
// false a tenth of the lease before its end, and the context is cancelled before another
// run can take over.
func TestLeaseIsLostWhenTheStoreStaysAway(t *testing.T) {
	for name, f := range map[string]func(left time.Duration) guardtest.Fault{
		"refused": func(time.Duration) guardtest.Fault { return guardtest.Refuse },
		"hanging": func(time.Duration) guardtest.Fault { return guardtest.Hang },
		"refused, and hanging in the end": func(left time.Duration) guardtest.Fault {
			if left > 0 {
				return guardtest.Refuse
			}
			return guardtest.Hang
		},
	} {
		for _, lease := range []time.Duration{100 * time.Millisecond, 3 * time.Second, guardtest.LeaseTime, time.Hour} {
			guardtest.Bubble(t, name+" "+lease.String(), func(t *testing.T) {
				sure := lease - lease/10
				p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					op, _ := idempotency.FromContext(r.Context())
					start := time.Now()
					time.Sleep(sure - time.Nanosecond)
					assert.True(t, op.Valid(), "lost before its time")
					assert.NoError(t, r.Context().Err(), "lost before its time")
					time.Sleep(time.Nanosecond)
					assert.False(t, op.Valid(), "valid in the last tenth of the lease")
					<-r.Context().Done()
					assert.LessOrEqual(t, time.Since(start), sure+time.Millisecond, "cancelled after")
					assert.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrLeaseLost)
					w.WriteHeader(http.StatusServiceUnavailable)
				}), idempotency.WithLease(lease))
				end := time.Now().Add(sure)
				p.Store.On("renew", func(int) guardtest.Fault { return f(time.Until(end)) })
				require.Equal(t, http.StatusServiceUnavailable, p.Do(t, guardtest.Call{Key: "k"}).Status)
				synctest.Wait() // the event comes after the cancellation
				require.Contains(t, p.Events.Kinds(), event.LeaseLost)
				p.RequireQuiet(t)
			})
		}
	}
}

// Another try is worthwhile as long as the lease is sure. The pauses between tries stay
// shorter than the time that is left.
func TestLeaseIsKeptWhenTheStoreComesBackInTime(t *testing.T) {
	for _, lease := range []time.Duration{100 * time.Millisecond, 3 * time.Second, 6 * time.Second, guardtest.LeaseTime, time.Hour} {
		guardtest.Bubble(t, lease.String(), func(t *testing.T) {
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(2*lease, "done"), idempotency.WithLease(lease))
			p.Store.On("renew", guardtest.Always(guardtest.Refuse))
			time.AfterFunc(lease-lease/10-lease/20, p.Store.Heal)
			require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
			require.NotContains(t, p.Events.Kinds(), event.LeaseLost)
		})
	}
}

// A late reply only proves that the lease began some time after the call was sent. The
// guard counts from the moment of sending.
func TestSureTimeIsCountedFromSending(t *testing.T) {
	slow := func(_ context.Context, proceed func() error) error {
		err := proceed()
		time.Sleep(time.Second)
		return err
	}
	for op, sent := range map[string]time.Duration{"claim": 0, "renew": guardtest.LeaseTime / 3} {
		guardtest.Bubble(t, op, func(t *testing.T) {
			end := time.Now().Add(sent + guardtest.LeaseTime - guardtest.LeaseTime/10)
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				op, _ := idempotency.FromContext(r.Context())
				w.WriteHeader(http.StatusCreated)
				time.Sleep(time.Until(end) - time.Nanosecond)
				assert.True(t, op.Valid(), "lost before its time")
				time.Sleep(time.Nanosecond)
				assert.False(t, op.Valid(), "valid in the last tenth of the lease")
			}))
			p.Store.On("renew", guardtest.Always(guardtest.Refuse))
			p.Store.On(op, func(n int) guardtest.Fault {
				if n == 1 {
					return slow
				}
				return guardtest.Refuse
			})
			require.Equal(t, http.StatusCreated, p.Do(t, guardtest.Call{Key: "k"}).Status)
		})
	}
}

// A run that was told to stop may go on. If the store comes back before the lease ends,
// nobody overtakes that run.
func TestLostLeaseIsStillRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		eager := guardtest.Answering(0, "eager")
		a, b := guardtest.NewProcess(t, shared, guardtest.Answering(2*guardtest.LeaseTime, "slow")), guardtest.NewProcess(t, shared, eager)
		a.Store.On("renew", guardtest.Always(guardtest.Refuse))
		done := a.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(guardtest.LeaseTime - guardtest.LeaseTime/10 + 100*time.Millisecond)
		require.Contains(t, a.Events.Kinds(), event.LeaseLost)
		a.Store.Heal()
		time.Sleep(guardtest.LeaseTime / 2)
		guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		require.Equal(t, "slow", (<-done).Body)
		require.Zero(t, eager.Runs.Load())
	})
}

// A refused renewal proves that the claim belongs to another run, or to none. The guard
// tells the run at once and does not wait until the lease would have ended.
func TestRefusedRenewalTellsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			start := time.Now()
			<-r.Context().Done()
			assert.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrLeaseLost)
			if took := time.Since(start); took != guardtest.LeaseTime/3 || op.Valid() {
				t.Errorf("told after %v, valid %v", took, op.Valid())
			}
		}))
		done := p.Start(t, guardtest.Call{Key: "k"})
		p.Store.Replace(idempotency.NewMemoryStore()) // it knows of no claim
		guardtest.RequireProblem(t, <-done, http.StatusServiceUnavailable, problem.NoAnswer)
		p.RequireQuiet(t)
	})
}
