package storefaults

// Outages that last longer than a lease.

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Of a claim whose reply was lost, and of a run that did nothing, nothing is unknown. The
// store was away when the guard said so, and another request has found the lapsed claim
// meanwhile. Once the store is back, the key must be free.
func TestOutageUnderHoldHoldsNothing(t *testing.T) {
	t.Parallel()
	outages := map[string]struct {
		begin    func(s *guardtest.FaultStore)
		statuses []int
	}{
		"a claim without a reply": {func(s *guardtest.FaultStore) {
			s.Fail(guardtest.Refuse)
			s.On("claim", guardtest.Always(guardtest.LoseReply))
		}, []int{http.StatusServiceUnavailable}},
		"a run that did nothing": {func(s *guardtest.FaultStore) {
			s.Fail(guardtest.Refuse)
			s.On("claim", nil)
			// If its lease has ended meanwhile, somebody may have settled the key.
		}, []int{http.StatusConflict, http.StatusTooManyRequests}},
	}
	for name, outage := range outages {
		holdsNothing := func(t *testing.T, shared idempotency.Store, pass func(time.Duration)) {
			hold := idempotency.WithRecovery(idempotency.Hold)
			a := guardtest.NewProcess(t, shared, &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				w.WriteHeader(http.StatusTooManyRequests)
			}}, hold)
			t.Cleanup(a.Store.Heal)
			b := guardtest.NewProcess(t, shared, guardtest.Answering(0, "done"), hold)

			outage.begin(a.Store)
			require.Contains(t, outage.statuses, a.Do(t, guardtest.Call{Key: "k"}).Status)
			pass(guardtest.LeaseTime)
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
			pass(2 * guardtest.LeaseTime) // the outage goes on

			a.Store.Heal()
			require.Eventually(t, func() bool { return b.Attempt(t, guardtest.Call{Key: "k"}).Body == "done" },
				guardtest.Patience, 10*time.Millisecond, "a key is held of which nothing ever ran")
		}
		t.Run("memory/"+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { holdsNothing(t, idempotency.NewMemoryStore(), time.Sleep) })
		})
		t.Run("redis/"+name, func(t *testing.T) {
			t.Parallel()
			b := guardtest.RedisBackends["miniredis"](t)
			holdsNothing(t, guardtest.RedisStore(t, guardtest.PatientRedisClient(t, b.Addrs...)),
				func(d time.Duration) { b.Advance(t, "idem:", d) })
		})
	}
}

// A run ends while the store is away for longer than its lease. Its client has the answer.
// The claim has lapsed when the store is back, and a retry that comes before the guard's next
// try finds it. Under Rerun that retry runs as attempt 2, and its answer counts from then on:
// docs/how-to/choosing.md says so, and to choose the lease accordingly. Under Hold it is refused,
// and the first answer is recorded all the same.
func TestOutageLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for recovery, want := range map[idempotency.Recovery]struct {
		runs             int64
		atOnce, recorded string
	}{
		idempotency.Rerun: {2, "charge 2", "charge 2"},
		idempotency.Hold:  {1, "", "charge 1"},
	} {
		t.Run(recovery.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
					time.Sleep(time.Second)
					_, _ = fmt.Fprint(w, "charge ", run)
				}}
				shared, call := idempotency.NewMemoryStore(), guardtest.Call{Key: "k"}
				a := guardtest.NewProcess(t, shared, h, idempotency.WithRecovery(recovery))
				b := guardtest.NewProcess(t, shared, h, idempotency.WithRecovery(recovery))
				done := a.Start(t, call)
				synctest.Wait()
				a.Store.Fail(guardtest.Refuse)
				require.Equal(t, "charge 1", (<-done).Body)

				time.Sleep(40 * time.Second)
				got := b.Do(t, call) // the store is back, and a has not tried again yet
				if want.atOnce == "" {
					guardtest.RequireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
				} else {
					require.Equal(t, want.atOnce, got.Body)
				}
				a.Store.Heal()
				time.Sleep(2 * time.Second)
				for _, p := range []*guardtest.Process{a, b} {
					got := p.Do(t, call)
					require.True(t, got.Replayed())
					require.Equal(t, want.recorded, got.Body)
				}
				require.Equal(t, want.runs, h.Runs.Load())
				require.Equal(t, want.runs > 1, a.Events.Count(event.Overtaken) > 0)
			})
		})
	}
}

// The context of a run ends between 17 and 27 s after the store has gone away, if the lease
// is 30 s: a tenth of the lease before it would lapse, which depends on when it was renewed.
func TestRunIsToldHowLongAfterTheStoreHasGone(t *testing.T) {
	t.Parallel()
	for begins, told := range map[time.Duration]time.Duration{
		guardtest.LeaseTime/3 + time.Millisecond:   27*time.Second - time.Millisecond,
		guardtest.LeaseTime*2/3 - time.Millisecond: 17*time.Second + time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			var lasted time.Duration
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				start := time.Now()
				<-r.Context().Done()
				lasted = time.Since(start)
			}))
			time.AfterFunc(begins, func() { p.Store.Fail(guardtest.Refuse) })
			p.Do(t, guardtest.Call{Key: "k"})
			require.InDelta(t, begins+told, lasted, float64(time.Millisecond))
			p.Store.Heal()
			require.NoError(t, p.Guard.Shutdown(t.Context()))
		})
	}
}

// A system goes on sending a claim that its process has given up, for minutes if the network was
// away for minutes. Under Hold the claim would then hold a key of which nothing has run, until
// somebody finds out. It is given back before or after it has lapsed, even if somebody has met it.
func TestClaimThatIsMinutesLateHoldsNothing(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{40 * time.Second, 2 * time.Minute, 5 * time.Minute, 14 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			h := guardtest.Answering(0, "done")
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(idempotency.Hold))
			p.Store.On("claim", guardtest.First(1, guardtest.Late(late)))
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			time.Sleep(late)
			synctest.Wait()
			met := p.Do(t, guardtest.Call{Key: "k"})
			require.Contains(t, []problem.Code{problem.InFlight, problem.OutcomeUnknown}, met.Problem.Code, "the claim has not come")
			require.Less(t, p.Store.Count("release"), 30)
			time.Sleep(late)
			require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body, "%v late", late)
			require.EqualValues(t, 1, h.Runs.Load())
			require.NoError(t, p.Guard.Shutdown(t.Context()))
		})
	}
}

// The claim is still on its way when its release is refused for the first time. Then the store
// is away for longer than the lease, and the claim has lapsed when it comes back. The first answer to
// anybody is the sign that it is back.
func TestOutageAfterALateClaimHoldsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(0, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(idempotency.Hold))
		p.Store.On("claim", guardtest.First(1, guardtest.Late(10*time.Second)))
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		time.Sleep(time.Second)
		require.NotZero(t, p.Store.Count("release"))
		p.Store.On("release", guardtest.Always(guardtest.Refuse))
		time.Sleep(2 * guardtest.LeaseTime)
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		synctest.Wait() // that answer has woken the release, which was refused once more
		p.Store.Heal()
		time.Sleep(3 * time.Second) // a release that was just refused hears of no answer for a moment
		p.Do(t, guardtest.Call{Key: "other"})
		synctest.Wait()
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
		require.EqualValues(t, 2, h.Runs.Load()) // of both keys
	})
}
