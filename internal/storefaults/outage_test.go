package storefaults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Outages that last longer than a lease.

// Of a claim whose reply was lost, and of a run that did nothing, nothing is unknown. The
// store was away when the guard said so, and another request has found the lapsed claim
// meanwhile. Once the store is back, the key must be free.
func TestOutageUnderHoldHoldsNothing(t *testing.T) {
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
		guardtest.Bubble(t, "memory/"+name, func(t *testing.T) { holdsNothing(t, idempotency.NewMemoryStore(), time.Sleep) })
		t.Run("redis/"+name, func(t *testing.T) {
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
	for recovery, want := range map[idempotency.Recovery]struct {
		runs             int64
		atOnce, recorded string
	}{
		idempotency.Rerun: {2, "charge 2", "charge 2"},
		idempotency.Hold:  {1, "", "charge 1"},
	} {
		guardtest.Bubble(t, recovery.String(), func(t *testing.T) {
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
	}
}

// The context of a run ends between 17 and 27 s after the store has gone away, if the lease
// is 30 s: a tenth of the lease before it would lapse, which depends on when it was renewed.
func TestRunIsToldHowLongAfterTheStoreHasGone(t *testing.T) {
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

// Claims whose reply was lost, in an outage that goes on: what the process does meanwhile, and how
// it ends.

// Nothing has run, and so nobody has to wait for a store that is away. But an operator hears which
// keys may be held.
func TestShutdownDoesNotWaitForGhosts(t *testing.T) {
	guardtest.Each(t, map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang}, func(t *testing.T, fault guardtest.Fault) {
		guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			const lease = 20 * time.Second
			h := guardtest.Answering(0, "done")
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery, idempotency.WithLease(lease))
			p.Store.Fail(fault)
			p.Do(t, guardtest.Call{Key: "k"})
			time.Sleep(30 * time.Minute)
			require.Equal(t, idempotency.Stats{GivingBack: 1}, p.Guard.Stats())
			require.Zero(t, p.Events.Count(event.ClaimLeft), "the store may still come back")

			start := time.Now()
			require.NoError(t, p.Guard.Shutdown(context.Background()))
			require.LessOrEqual(t, time.Since(start), lease)
			require.Greater(t, time.Since(start), lease/2, "it has had its time")
			require.Equal(t, 1, p.Events.Count(event.ClaimLeft))
			synctest.Wait()
			require.Zero(t, p.Guard.Stats())
			require.Zero(t, h.Runs.Load())
			for _, e := range p.Events.All() {
				if e.Kind == event.ClaimLeft {
					require.NotEmpty(t, e.Record)
					require.ErrorIs(t, e.Err, idempotency.ErrShutdown)
					require.Equal(t, unknown == guardtest.IsHeld, strings.Contains(e.Err.Error(), "held"))
				}
			}
		})
	})
}

// A store may return what it has read although the call failed in the end. Nobody runs under such a
// claim, and so it is given back like any other ghost.
func TestRecordWithAnErrorMeansNothing(t *testing.T) {
	guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		st := &talkativeStore{Store: idempotency.NewMemoryStore(), fails: true}
		h := guardtest.Answering(0, "done")
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, recovery).Handler(h))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		synctest.Wait()
		st.fails = false
		require.Equal(t, "done", s.Do(t, guardtest.Call{Key: "k"}).Body)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A talkativeStore returns a record together with an error.
type talkativeStore struct {
	idempotency.Store
	fails bool
}

func (s *talkativeStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	rec, err := s.Store.Claim(ctx, key, c)
	if s.fails {
		err = guardtest.ErrDown
	}
	return rec, err
}

func TestShutdownReportsGhostsAtItsDeadline(t *testing.T) {
	guardtest.EachInBubble(t, map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang}, func(t *testing.T, fault guardtest.Fault) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.Fail(fault)
		p.Do(t, guardtest.Call{Key: "k"})
		require.NoError(t, p.Guard.Shutdown(guardtest.Shortly(t)), "nothing has run that is not recorded")
		require.Equal(t, 1, p.Events.Count(event.ClaimLeft), "the process may end now")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 1, p.Events.Count(event.ClaimLeft))
		require.Zero(t, p.Guard.Stats())
	})
}

// A run that is left is an error, whatever else is left. A claim whose reply is lost after the deadline
// is left, too.
func TestShutdownThatLeavesARunAndItsGhosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{Handler: func(http.ResponseWriter, *http.Request, int64) {
			time.Sleep(time.Hour)
		}})
		run := p.Start(t, guardtest.Call{Key: "run"})
		synctest.Wait()
		p.Store.On("claim", guardtest.Always(guardtest.Late(time.Minute)))
		late := p.Start(t, guardtest.Call{Key: "late"})
		synctest.Wait()
		require.ErrorIs(t, p.Guard.Shutdown(guardtest.Shortly(t)), context.DeadlineExceeded)
		<-late
		synctest.Wait()
		require.Equal(t, 1, p.Events.Count(event.ClaimLeft))
		require.Zero(t, p.Guard.Stats().GivingBack)
		<-run
	})
}

// While the store is away, many ghosts ask it seldom. When any request has found it back, they
// are gone soon, one after another.
func TestGhostsOfALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ghosts = 50
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.On("claim", guardtest.Always(guardtest.LoseReply))
		p.Store.On("release", guardtest.Always(guardtest.Refuse))
		for i := range ghosts {
			p.Do(t, guardtest.Call{Key: fmt.Sprint(i)})
		}
		time.Sleep(10*time.Minute + 10*time.Second)
		before := p.Store.Count("release")
		time.Sleep(5 * time.Minute)
		require.InDelta(t, 10*ghosts, p.Store.Count("release")-before, ghosts, "one call every 30 s for each")
		require.Equal(t, idempotency.Stats{GivingBack: ghosts}, p.Guard.Stats())

		time.Sleep(15 * time.Second)
		p.Store.Heal()
		time.Sleep(3 * time.Second)
		p.Do(t, guardtest.Call{Key: "other"})
		synctest.Wait()
		require.Zero(t, p.Guard.Stats())
		require.Zero(t, p.Events.Count(event.ClaimLeft))
		p.RequireQuiet(t)
	})
}

// A single call disappears, for example on a connection that a firewall has forgotten. It
// costs half of the time that the caller has. The next try succeeds: the step is recorded,
// or the run is settled in the foreground.
func TestOneHangingCallIsRepeatedInTime(t *testing.T) {
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
		guardtest.Bubble(t, op, func(t *testing.T) {
			store, seen := guardtest.NewStepFaultStore(), &guardtest.Events{}
			store.On(op, guardtest.First(1, guardtest.Hang))
			guard := guardtest.NewGuard(t, store, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(seen.Observe))
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				if _, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil }); err != nil {
					t.Error(err)
				}
				if test.status == http.StatusTooManyRequests { // the status alone would not outvote the step
					guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
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
	}
}

// The store has settled a run, but the reply was lost, so it refuses the next renewal. That
// is not a lost lease and must not be reported as one.
func TestSettledRunHasNotLostItsLease(t *testing.T) {
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

func TestMain(m *testing.M) {
	redistest.AtOnce(8)
	os.Exit(guardtest.Main(m))
}
