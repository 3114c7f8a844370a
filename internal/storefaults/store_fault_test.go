package storefaults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

func TestStoreDownAtClaimRunsNothing(t *testing.T) {
	guardtest.EachInBubble(t, map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang}, func(t *testing.T, f guardtest.Fault) {
		h := guardtest.Answering(0, "done")
		memory := idempotency.NewMemoryStore()
		p := guardtest.NewProcess(t, memory, h)
		p.Store.On("claim", guardtest.Always(f))
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Zero(t, h.Runs.Load())
		require.Zero(t, memory.Len())
		require.Contains(t, p.Events.Kinds(), event.StoreError)

		p.Store.Heal()
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
		require.NoError(t, p.Guard.Shutdown(guardtest.Shortly(t)))
		p.RequireQuiet(t)
	})
}

func TestFailOpenRunsVisibly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(_ http.ResponseWriter, r *http.Request, _ int64) {
			if _, ok := idempotency.FromContext(r.Context()); ok {
				t.Error("an unprotected run has an operation")
			}
		}}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithFailOpen(true))
		p.Store.On("claim", guardtest.Always(guardtest.Refuse))
		for run := 1; run <= 2; run++ {
			got := p.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, http.StatusOK, got.Status)
			require.False(t, got.Replayed())
			require.EqualValues(t, run, h.Runs.Load())
		}
		kinds := p.Events.Kinds()
		require.Contains(t, kinds, event.FailOpen)
		require.NotContains(t, kinds, event.Run)
	})
}

// A run without protection inside a step of another run takes part in neither record. Its
// steps would be steps inside that step, and it would derive the same keys each time.
func TestFailOpenRunIsNoPartOfAnother(t *testing.T) {
	st := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
	st.On("claim", guardtest.Always(guardtest.Refuse))
	away := guardtest.NewGuard(t, st, idempotency.WithFailOpen(true))
	charge := func(ctx context.Context) (string, error) {
		if _, ok := idempotency.FromContext(ctx); ok {
			t.Error("an unprotected run has an operation")
		}
		return idempotency.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			return idempotency.DeriveKey(ctx, "charge"), nil
		})
	}
	var keys []string
	collect := func(key string, err error) {
		if err != nil || slices.Contains(keys, key) {
			t.Errorf("key %q of %q, %v", key, keys, err)
		}
		keys = append(keys, key)
	}
	inner := away.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { collect(charge(r.Context())) }))
	var s *guardtest.Server
	s = guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "all", func(ctx context.Context) (int, error) {
			for _, item := range []string{"first", "second"} {
				key, _, err := idempotency.Do(ctx, away, idempotency.Key{Scope: "item", Value: item}, charge)
				collect(key, err)
				inner.ServeHTTP(w, s.Request(ctx, guardtest.Call{Key: item}))
			}
			return 0, nil
		})
		assert.NoError(t, err)
	})))
	require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Len(t, keys, 4)
}

// A refusal by the store is an answer and not a failure, so the guard undoes nothing.
func TestDefiniteRefusalsOfTheStore(t *testing.T) {
	type row struct {
		err    error
		status int
		code   problem.Code
	}
	guardtest.EachInBubble(t, map[string]row{
		"full":    {idempotency.ErrStoreFull, http.StatusServiceUnavailable, problem.StoreUnavailable},
		"corrupt": {idempotency.ErrCorrupt, http.StatusInternalServerError, problem.AnswerUnreadable},
	}, func(t *testing.T, tt row) {
		h := guardtest.Answering(0, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
		p.Store.On("claim", guardtest.Always(guardtest.FailWith(tt.err)))
		for range 3 {
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), tt.status, tt.code)
		}
		require.Zero(t, h.Runs.Load())
		p.RequireQuiet(t)
		require.Zero(t, p.Store.Count("release"))
	})
}

// A ghost is a claim that was executed but whose reply was lost. Nobody runs under it. If
// the guard did not release it, it would block the key for a lease, or hold it under Hold.
func TestGhostClaimIsGivenBack(t *testing.T) {
	type row struct {
		claim, release func(int) guardtest.Fault
		after          time.Duration // the key is free by then
	}
	guardtest.Each(t, map[string]row{
		"reply lost":                  {guardtest.First(1, guardtest.LoseReply), nil, 0},
		"reply lost, release refused": {guardtest.First(1, guardtest.LoseReply), guardtest.First(5, guardtest.Refuse), time.Second},
		"reply lost, release hangs":   {guardtest.First(1, guardtest.LoseReply), guardtest.First(1, guardtest.Hang), 3 * time.Second},
		"executed late":               {guardtest.First(1, guardtest.Late(5*time.Second)), nil, 7 * time.Second},
		"executed very late":          {guardtest.First(1, guardtest.Late(20*time.Second)), nil, 22 * time.Second},
	}, func(t *testing.T, tt row) {
		guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
			h := guardtest.Answering(0, "done")
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery)
			p.Store.On("claim", tt.claim)
			p.Store.On("release", tt.release)
			start := time.Now()
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			require.LessOrEqual(t, time.Since(start), 2*time.Second)
			time.Sleep(tt.after - time.Since(start))
			synctest.Wait()
			require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "k"}).Body)
			require.EqualValues(t, 1, h.Runs.Load())
			p.RequireQuiet(t)
		})
	})
}

// A shutdown releases a ghost if the store comes back in time. It does not wait for a claim
// that probably never existed.
func TestShutdownGivesGhostClaimsBack(t *testing.T) {
	guardtest.Bubble(t, "the store is away", func(t *testing.T) {
		shared := idempotency.NewMemoryStore()
		p := guardtest.NewProcess(t, shared, guardtest.Answering(0, "done"), idempotency.WithRecovery(idempotency.Hold))
		p.Store.On("claim", guardtest.Always(guardtest.LoseReply))
		p.Store.On("release", guardtest.Always(guardtest.Refuse))
		p.Do(t, guardtest.Call{Key: "k"})
		time.AfterFunc(5*time.Second, p.Store.Heal)
		start := time.Now()
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		require.Less(t, time.Since(start), 8*time.Second)
		next := guardtest.NewProcess(t, shared, guardtest.Answering(0, "next"))
		require.Equal(t, "next", next.Do(t, guardtest.Call{Key: "k"}).Body)
	})
	guardtest.Bubble(t, "the store never saw it", func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.On("claim", guardtest.Always(guardtest.Refuse))
		p.Do(t, guardtest.Call{Key: "k"})
		start := time.Now()
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		require.Zero(t, time.Since(start))
	})
}

// The effect has happened, and the store cannot record the answer. The client still gets
// the answer soon, nobody runs again, and the guard records it when the store is back.
func TestAnswerIsRecordedWhenTheStoreIsBack(t *testing.T) {
	tests := map[string]struct {
		fault  guardtest.Fault
		within time.Duration // of the store's return, at whatever moment between two tries that is
	}{
		"refused": {guardtest.Refuse, 2 * time.Second},
		"hanging": {guardtest.Hang, 4 * time.Second}, // the try that is under way does not notice
	}
	for name, tt := range tests {
		for after := range 4 * time.Second / (500 * time.Millisecond) {
			away := 5*time.Minute + after*500*time.Millisecond // ten leases
			guardtest.Bubble(t, fmt.Sprint(name, " for ", away), func(t *testing.T) {
				h := guardtest.Answering(0, "done")
				shared := idempotency.NewMemoryStore()
				p, other := guardtest.NewProcess(t, shared, h), guardtest.NewProcess(t, shared, h)
				p.Store.On("complete", guardtest.Always(tt.fault))
				start := time.Now()
				got := p.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, "done", got.Body)
				require.LessOrEqual(t, time.Since(start), 2*time.Second)
				for time.Since(start) < away-time.Second {
					guardtest.RequireProblem(t, other.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
					time.Sleep(time.Second)
				}
				time.Sleep(away - time.Since(start))
				p.Store.Heal()
				time.Sleep(tt.within)
				got = other.Do(t, guardtest.Call{Key: "k"})
				require.True(t, got.Replayed())
				require.Equal(t, "done", got.Body)
				require.EqualValues(t, 1, h.Runs.Load())
				require.Equal(t, 1, p.Events.Count(event.RecordingDelayed))
				require.Zero(t, p.Events.Count(event.RecordingLost))
				p.RequireQuiet(t)
			})
		}
	}
}

// The whole store is away for less than a lease.
func TestOutageShorterThanTheLeaseRunsNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(15*time.Second, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
		done := p.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(14 * time.Second)
		p.Store.Fail(guardtest.Refuse)
		time.AfterFunc(20*time.Second, p.Store.Heal)
		require.Equal(t, "done", (<-done).Body)
		for range 300 {
			got := p.Do(t, guardtest.Call{Key: "k"})
			require.True(t, got.Replayed() || got.Status != http.StatusOK)
			time.Sleep(100 * time.Millisecond)
		}
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A guard repeats each kind of settling until the store acknowledges it, even if it had
// already happened.
func TestSettlingIsRepeated(t *testing.T) {
	faults := map[string]func(int) guardtest.Fault{
		"refused":          guardtest.First(3, guardtest.Refuse),
		"reply lost":       guardtest.First(3, guardtest.LoseReply),
		"hanging":          guardtest.First(1, guardtest.Hang),
		"refused for long": guardtest.First(30, guardtest.Refuse),
	}
	for name, f := range faults {
		for op, end := range map[string]struct {
			status   int
			recovery idempotency.Recovery
			want     guardtest.Fate
		}{
			"complete": {http.StatusCreated, idempotency.Rerun, guardtest.Replays},
			"release":  {http.StatusBadGateway, idempotency.Rerun, guardtest.RunsNext},
			"hold":     {http.StatusBadGateway, idempotency.Hold, guardtest.IsHeld},
		} {
			guardtest.Bubble(t, op+" "+name, func(t *testing.T) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(end.status) }}
				p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(end.recovery))
				p.Store.On(op, f)
				start := time.Now()
				require.Equal(t, end.status, p.Do(t, guardtest.Call{Key: "k"}).Status)
				require.LessOrEqual(t, time.Since(start), 2*time.Second)
				time.Sleep(2 * time.Minute)
				guardtest.RequireFate(t, p.Server, h, guardtest.Call{Key: "k"}, end.want)
				p.RequireQuiet(t)
			})
		}
	}
}

// A store that ignores deadlines hangs in its own goroutine and delays nobody else.
func TestDeafStoreHangsNobody(t *testing.T) {
	tests := map[string]struct {
		status int
		want   int
		within time.Duration
	}{
		"claim":    {http.StatusOK, http.StatusServiceUnavailable, 2 * time.Second},
		"renew":    {http.StatusOK, http.StatusOK, 0},
		"complete": {http.StatusOK, http.StatusOK, 2 * time.Second},
		"release":  {http.StatusTooManyRequests, http.StatusTooManyRequests, 2 * time.Second},
		"hold":     {http.StatusBadGateway, http.StatusBadGateway, 2 * time.Second},
	}
	for op, tt := range tests {
		guardtest.Bubble(t, op, func(t *testing.T) {
			hearing := make(chan struct{})
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				time.Sleep(time.Minute)
				w.WriteHeader(tt.status)
			}}
			if op == "claim" {
				h = guardtest.Answering(0, "")
			}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(idempotency.Hold))
			p.Store.On(op, guardtest.Always(guardtest.Deaf(hearing)))
			start := time.Now()
			got := p.Do(t, guardtest.Call{Key: "k"})
			took := time.Since(start)
			if op != "claim" {
				took -= time.Minute
			}
			require.Equal(t, tt.want, got.Status)
			require.LessOrEqual(t, took, tt.within)
			_ = p.Guard.Shutdown(guardtest.Shortly(t))
			close(hearing)
			p.RequireQuiet(t)
		})
	}
}

// A store that panics has failed like any other, wherever it is called: also where no request
// waits, and in goroutines of the guard's own.
func TestStoreThatPanicsEndsNothing(t *testing.T) {
	for op, want := range map[string]int{
		"claim": http.StatusServiceUnavailable, "renew": http.StatusOK, "complete": http.StatusOK,
	} {
		guardtest.Bubble(t, op, func(t *testing.T) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				time.Sleep(time.Minute)
				w.WriteHeader(http.StatusOK)
			}}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
			p.Store.On(op, guardtest.Always(guardtest.Panic))
			require.Equal(t, want, p.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Positive(t, p.Store.Count(op))
			p.Store.Heal()
			time.Sleep(time.Minute) // longer than any pause between two tries
			require.Equal(t, http.StatusOK, p.Do(t, guardtest.Call{Key: "k"}).Status)
			require.EqualValues(t, 1, h.Runs.Load())
			p.RequireQuiet(t)
		})
	}
}

// Each call to such a store costs a goroutine until it returns. When there are many of
// them, the guard makes no more calls of any kind until some return. Claims are throttled before that, but not
// where they fail open.
func TestDeafStoreIsNotCalledWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, atOnce = 4096, 512
		rounds := 3 * bound / atOnce
		if race.Enabled {
			rounds = bound/atOnce + 1 // to reach the bound
		}
		hearing := make(chan struct{})
		hear := sync.OnceFunc(func() { close(hearing) })
		defer hear()
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"), idempotency.WithFailOpen(true))
		p.Store.Fail(guardtest.Deaf(hearing))
		for round := range rounds {
			guardtest.Together(atOnce, func(i int) {
				got := p.Attempt(t, guardtest.Call{Key: fmt.Sprintf("%d-%d", round, i)})
				assert.Equal(t, "done", got.Body, "request %d: %d %s", i, got.Status, got.Body)
			})
		}
		time.Sleep(time.Minute) // claims are given back, which are calls too
		require.GreaterOrEqual(t, p.Store.Total(), bound)
		// Calls that had begun when the bound was reached come on top.
		require.LessOrEqual(t, p.Store.Total(), 2*bound+atOnce)

		hear()
		synctest.Wait()
		p.Store.Heal()
		require.Equal(t, "done", p.Do(t, guardtest.Call{Key: "after"}).Body)
	})
}

// A long outage costs a bounded number of goroutines, however many requests fail. When it is
// over, claims that may be minutes late do not keep the room from others.
func TestGhostClaimsAreBoundedByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fit, over = 4096, 3
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"), idempotency.WithRecovery(idempotency.Hold))
		p.Store.Fail(guardtest.Hang)
		guardtest.Together(fit+over, func(i int) {
			got := p.Attempt(t, guardtest.Call{Key: fmt.Sprint(i)})
			assert.Equal(t, problem.StoreUnavailable, got.Problem.Code, "request %d: %d %s", i, got.Status, got.Body)
		})
		synctest.Wait()
		require.Equal(t, over, p.Events.Count(event.ClaimLeft))
		require.LessOrEqual(t, p.Store.Count("release"), 16+4, "no more ask at a time")
		p.Store.Heal()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, p.Store.Count("release"), fit)

		// The guard has room again.
		p.Store.On("claim", guardtest.First(p.Store.Count("claim")+1, guardtest.Refuse))
		before := p.Store.Count("release")
		p.Do(t, guardtest.Call{Key: "after"})
		synctest.Wait()
		require.Greater(t, p.Store.Count("release"), before)
	})
}

// A store that refuses each call at once is not asked several times as often as it would be without the guard's releases.
func TestRefusedClaimsAreGivenBackSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.Fail(guardtest.Refuse)
		guardtest.Together(250, func(i int) { p.Attempt(t, guardtest.Call{Key: fmt.Sprint(i)}) })
		time.Sleep(5 * time.Second)
		require.Less(t, p.Store.Count("release"), 6*p.Store.Count("claim"))
		p.Store.Heal()
		before := p.Store.Count("release")
		require.Equal(t, http.StatusOK, p.Do(t, guardtest.Call{Key: "next"}).Status)
		time.Sleep(time.Second)
		require.GreaterOrEqual(t, p.Store.Count("release"), before+250, "the answer wakes one, and each the next")
	})
}

// A guard that fails open may run a key that it knows nothing about. If the store told it
// of a record before it failed, another run exists or existed, and the guard refuses.
func TestFailOpenDoesNotForgetWhatTheStoreHasSaid(t *testing.T) {
	for name, c := range map[string]struct {
		opt    idempotency.Option
		status int
		code   problem.Code
	}{
		"waiting": {idempotency.WithWait(time.Minute), http.StatusConflict, problem.InFlight},
		"resolved": {idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			return idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusCreated}, nil
		}), http.StatusServiceUnavailable, problem.StoreUnavailable},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			behind := idempotency.NewMemoryStore()
			h := guardtest.FailsFirst()
			if name == "waiting" {
				h = &guardtest.Counter{Handler: func(http.ResponseWriter, *http.Request, int64) { time.Sleep(time.Hour) }}
			}
			strict := guardtest.ServeRecorder(t, guardtest.NewGuard(t, behind, idempotency.WithRecovery(idempotency.Hold)).Handler(h))
			go func() { _, _ = strict.Try(t.Context(), guardtest.Call{Key: "k"}) }()
			synctest.Wait()

			st := inspectedFaultStore{&guardtest.FaultStore{Behind: behind}, behind}
			st.On("claim", func(n int) guardtest.Fault {
				if n > 1 {
					return guardtest.Refuse
				}
				return nil
			})
			g := guardtest.NewGuard(t, st, idempotency.WithFailOpen(true), c.opt)
			guardtest.RequireProblem(t, guardtest.ServeRecorder(t, g.Handler(h)).Do(t, guardtest.Call{Key: "k"}), c.status, c.code)
			_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: store.Shared, Value: "k"},
				func(context.Context) (int, error) { return 0, errors.New("run unprotected") })
			require.Error(t, err)
			require.EqualValues(t, 1, h.Runs.Load())
			time.Sleep(2 * time.Hour)
		})
	}
}
