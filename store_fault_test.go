package idempotency_test

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

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

func TestStoreDownAtClaimRunsNothing(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"refused": refuse, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(0, "done")
				memory := idempotency.NewMemoryStore()
				p := newProcess(t, memory, h)
				p.store.on("claim", always(f))
				requireProblem(t, p.do(t, call{key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
				require.Zero(t, h.runs.Load())
				require.Zero(t, memory.Len())
				require.Contains(t, p.events.kinds(), idempotency.EventStoreError)

				p.store.heal()
				require.Equal(t, "done", p.do(t, call{key: "k"}).body)
				require.NoError(t, p.guard.Shutdown(shortly(t)))
				p.requireQuiet(t)
			})
		})
	}
}

func TestFailOpenRunsVisibly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &counter{handler: func(_ http.ResponseWriter, r *http.Request, _ int64) {
			if _, ok := idempotency.FromContext(r.Context()); ok {
				t.Error("an unprotected run has an operation")
			}
		}}
		p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithFailOpen(true))
		p.store.on("claim", always(refuse))
		for run := 1; run <= 2; run++ {
			got := p.do(t, call{key: "k"})
			require.Equal(t, http.StatusOK, got.status)
			require.False(t, got.replayed())
			require.EqualValues(t, run, h.runs.Load())
		}
		kinds := p.events.kinds()
		require.Contains(t, kinds, idempotency.EventFailOpen)
		require.NotContains(t, kinds, idempotency.EventRun)
	})
}

// What runs unprotected within a step of another run takes part in neither: its steps would
// be steps inside that one, and the keys that it derives the same each time.
func TestFailOpenRunIsNoPartOfAnother(t *testing.T) {
	t.Parallel()
	store := &faultStore{behind: idempotency.NewMemoryStore()}
	store.on("claim", always(refuse))
	away := newGuard(t, store, idempotency.WithFailOpen(true))
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
	var s *server
	s = serveRecorder(t, newGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "all", func(ctx context.Context) (int, error) {
			for _, item := range []string{"first", "second"} {
				key, _, err := idempotency.Do(ctx, away, idempotency.Key{Scope: "item", Value: item}, charge)
				collect(key, err)
				inner.ServeHTTP(w, s.request(ctx, call{key: item}))
			}
			return 0, nil
		})
		if err != nil {
			t.Error(err)
		}
	})))
	require.Equal(t, http.StatusOK, s.do(t, call{key: "k"}).status)
	require.Len(t, keys, 4)
}

// What a store says is an answer and no failure, so that nothing is to be undone.
func TestDefiniteRefusalsOfTheStore(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err    error
		status int
		code   problem.Code
	}{
		"full":    {idempotency.ErrStoreFull, http.StatusServiceUnavailable, problem.StoreUnavailable},
		"corrupt": {idempotency.ErrCorrupt, http.StatusInternalServerError, problem.AnswerUnreadable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(0, "done")
				p := newProcess(t, idempotency.NewMemoryStore(), h)
				p.store.on("claim", always(failWith(tt.err)))
				for range 3 {
					requireProblem(t, p.do(t, call{key: "k"}), tt.status, tt.code)
				}
				require.Zero(t, h.runs.Load())
				p.requireQuiet(t)
				require.Zero(t, p.store.count("release"))
			})
		})
	}
}

// A ghost: the claim was executed and its reply lost. Nobody runs, and the key would
// stay blocked for a lease, or be held under Hold, if the guard did not give it back.
func TestGhostClaimIsGivenBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		claim, release func(int) fault
		after          time.Duration // the key is free by then
	}{
		"reply lost":                  {first(1, loseReply), nil, 0},
		"reply lost, release refused": {first(1, loseReply), first(5, refuse), time.Second},
		"reply lost, release hangs":   {first(1, loseReply), first(1, hang), 3 * time.Second},
		"executed late":               {first(1, late(5*time.Second)), nil, 7 * time.Second},
		"executed very late":          {first(1, late(20*time.Second)), nil, 22 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recoveries(t, func(t *testing.T, recovery idempotency.Option, _ fate) {
				synctest.Test(t, func(t *testing.T) {
					h := answering(0, "done")
					p := newProcess(t, idempotency.NewMemoryStore(), h, recovery)
					p.store.on("claim", tt.claim)
					p.store.on("release", tt.release)
					start := time.Now()
					requireProblem(t, p.do(t, call{key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
					require.LessOrEqual(t, time.Since(start), 2*time.Second)
					time.Sleep(tt.after - time.Since(start))
					synctest.Wait()
					require.Equal(t, "done", p.do(t, call{key: "k"}).body)
					require.EqualValues(t, 1, h.runs.Load())
					p.requireQuiet(t)
				})
			})
		})
	}
}

// A shutdown does not leave a ghost behind if the store comes back in time, and does not
// wait for one that was probably never there.
func TestShutdownGivesGhostClaimsBack(t *testing.T) {
	t.Parallel()
	t.Run("the store is away", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			shared := idempotency.NewMemoryStore()
			p := newProcess(t, shared, answering(0, "done"), idempotency.WithRecovery(idempotency.Hold))
			p.store.on("claim", always(loseReply))
			p.store.on("release", always(refuse))
			p.do(t, call{key: "k"})
			time.AfterFunc(5*time.Second, p.store.heal)
			start := time.Now()
			require.NoError(t, p.guard.Shutdown(t.Context()))
			require.Less(t, time.Since(start), 8*time.Second)
			next := newProcess(t, shared, answering(0, "next"))
			require.Equal(t, "next", next.do(t, call{key: "k"}).body)
		})
	})
	t.Run("the store never saw it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(t, idempotency.NewMemoryStore(), answering(0, "done"))
			p.store.on("claim", always(refuse))
			p.do(t, call{key: "k"})
			start := time.Now()
			require.NoError(t, p.guard.Shutdown(t.Context()))
			require.Zero(t, time.Since(start))
		})
	})
}

// The effect has happened and the answer cannot be recorded: the client gets it all the
// same, soon, nobody runs again, and it is recorded when the store is back.
func TestAnswerIsRecordedWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		fault  fault
		within time.Duration // of the store's return, at whatever moment between two tries that is
	}{
		"refused": {refuse, 2 * time.Second},
		"hanging": {hang, 4 * time.Second}, // the try that is under way does not notice
	}
	for name, tt := range tests {
		for after := range 4 * time.Second / (500 * time.Millisecond) {
			away := 5*time.Minute + after*500*time.Millisecond // ten leases
			t.Run(fmt.Sprint(name, " for ", away), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := answering(0, "done")
					shared := idempotency.NewMemoryStore()
					p, other := newProcess(t, shared, h), newProcess(t, shared, h)
					p.store.on("complete", always(tt.fault))
					start := time.Now()
					got := p.do(t, call{key: "k"})
					require.Equal(t, "done", got.body)
					require.LessOrEqual(t, time.Since(start), 2*time.Second)
					for time.Since(start) < away-time.Second {
						requireProblem(t, other.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
						time.Sleep(time.Second)
					}
					time.Sleep(away - time.Since(start))
					p.store.heal()
					time.Sleep(tt.within)
					got = other.do(t, call{key: "k"})
					require.True(t, got.replayed())
					require.Equal(t, "done", got.body)
					require.EqualValues(t, 1, h.runs.Load())
					require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingDelayed))
					require.Zero(t, countKind(p.events, idempotency.EventRecordingLost))
					p.requireQuiet(t)
				})
			})
		}
	}
}

func countKind(e *events, kind idempotency.EventKind) (n int) {
	for _, k := range e.kinds() {
		if k == kind {
			n++
		}
	}
	return n
}

// The whole store is away, for less than the lease.
func TestOutageShorterThanTheLeaseRunsNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(15*time.Second, "done")
		p := newProcess(t, idempotency.NewMemoryStore(), h)
		done := p.start(t, call{key: "k"})
		time.Sleep(14 * time.Second)
		p.store.fail(refuse)
		time.AfterFunc(20*time.Second, p.store.heal)
		require.Equal(t, "done", (<-done).body)
		for range 300 {
			got := p.do(t, call{key: "k"})
			require.True(t, got.replayed() || got.status != http.StatusOK)
			time.Sleep(100 * time.Millisecond)
		}
		require.True(t, p.do(t, call{key: "k"}).replayed())
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// Each kind of settling is repeated until it is acknowledged, which may be after it has
// happened.
func TestSettlingIsRepeated(t *testing.T) {
	t.Parallel()
	faults := map[string]func(int) fault{
		"refused":          first(3, refuse),
		"reply lost":       first(3, loseReply),
		"hanging":          first(1, hang),
		"refused for long": first(30, refuse),
	}
	for name, f := range faults {
		for op, end := range map[string]struct {
			status   int
			recovery idempotency.Recovery
			want     fate
		}{
			"complete": {http.StatusCreated, idempotency.Rerun, replays},
			"release":  {http.StatusBadGateway, idempotency.Rerun, runsNext},
			"hold":     {http.StatusBadGateway, idempotency.Hold, isHeld},
		} {
			t.Run(op+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(end.status) }}
					p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(end.recovery))
					p.store.on(op, f)
					start := time.Now()
					require.Equal(t, end.status, p.do(t, call{key: "k"}).status)
					require.LessOrEqual(t, time.Since(start), 2*time.Second)
					time.Sleep(2 * time.Minute)
					requireFate(t, p.server, h, call{key: "k"}, end.want)
					p.requireQuiet(t)
				})
			})
		}
	}
}

// A store that ignores deadlines hangs in its own goroutine, and hangs nobody else.
func TestDeafStoreHangsNobody(t *testing.T) {
	t.Parallel()
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
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hearing := make(chan struct{})
				h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					time.Sleep(time.Minute)
					w.WriteHeader(tt.status)
				}}
				if op == "claim" {
					h = answering(0, "")
				}
				p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithRecovery(idempotency.Hold))
				p.store.on(op, always(deaf(hearing)))
				start := time.Now()
				got := p.do(t, call{key: "k"})
				took := time.Since(start)
				if op != "claim" {
					took -= time.Minute
				}
				require.Equal(t, tt.want, got.status)
				require.LessOrEqual(t, took, tt.within)
				_ = p.guard.Shutdown(shortly(t))
				close(hearing)
				p.requireQuiet(t)
			})
		})
	}
}

// Each call that such a store does not come back from keeps a goroutine. When there are
// many of them no more calls are made, of whatever kind, until it has come back.
func TestDeafStoreIsNotCalledWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const bound, atOnce = 4096, 512
		hearing := make(chan struct{})
		hear := sync.OnceFunc(func() { close(hearing) })
		defer hear()
		p := newProcess(t, idempotency.NewMemoryStore(), answering(0, "done"))
		p.store.fail(deaf(hearing))
		for round := range 3 * bound / atOnce {
			var wg sync.WaitGroup
			for i := range atOnce {
				wg.Go(func() {
					got := p.attempt(t, call{key: fmt.Sprintf("%d-%d", round, i)})
					if got.problem.Code != problem.StoreUnavailable {
						t.Errorf("request %d: %d %s", i, got.status, got.body)
					}
				})
			}
			wg.Wait()
		}
		time.Sleep(time.Minute) // claims are given back, which are calls too
		require.GreaterOrEqual(t, p.store.total(), bound)
		// Those that were on their way when the bound was reached come on top.
		require.LessOrEqual(t, p.store.total(), 2*bound+atOnce)

		hear()
		synctest.Wait()
		p.store.heal()
		require.Equal(t, "done", p.do(t, call{key: "after"}).body)
	})
}

// A long outage costs a bounded number of goroutines, however many requests fail in it.
func TestGhostClaimsAreBoundedByNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const fit, over = 4096, 3
		p := newProcess(t, idempotency.NewMemoryStore(), answering(0, "done"))
		p.store.fail(hang)
		var wg sync.WaitGroup
		for i := range fit + over {
			wg.Go(func() {
				got := p.attempt(t, call{key: fmt.Sprint(i)})
				if got.problem.Code != problem.StoreUnavailable {
					t.Errorf("request %d: %d %s", i, got.status, got.body)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		require.Equal(t, fit, p.store.count("release"))
		p.store.heal()
		time.Sleep(time.Minute)
		synctest.Wait()

		// The room is given back.
		p.store.on("claim", first(p.store.count("claim")+1, refuse))
		before := p.store.count("release")
		p.do(t, call{key: "after"})
		synctest.Wait()
		require.Greater(t, p.store.count("release"), before)
	})
}

// A guard that fails open runs what nobody knows anything about. A store that has told of
// a record before it failed has said that somebody else has run, or runs.
func TestFailOpenDoesNotForgetWhatTheStoreHasSaid(t *testing.T) {
	t.Parallel()
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				behind := idempotency.NewMemoryStore()
				h := failsFirst()
				if name == "waiting" {
					h = &counter{handler: func(http.ResponseWriter, *http.Request, int64) { time.Sleep(time.Hour) }}
				}
				strict := serveRecorder(t, newGuard(t, behind, idempotency.WithRecovery(idempotency.Hold)).Handler(h))
				go func() { _, _ = strict.try(t.Context(), call{key: "k"}) }()
				synctest.Wait()

				store := inspectedFaultStore{&faultStore{behind: behind}, behind}
				store.on("claim", func(n int) fault {
					if n > 1 {
						return refuse
					}
					return nil
				})
				g := newGuard(t, store, idempotency.WithFailOpen(true), c.opt)
				requireProblem(t, serveRecorder(t, g.Handler(h)).do(t, call{key: "k"}), c.status, c.code)
				_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: idempotency.Shared, Value: "k"},
					func(context.Context) (int, error) { return 0, errors.New("run unprotected") })
				require.Error(t, err)
				require.EqualValues(t, 1, h.runs.Load())
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// An inspectedFaultStore fails in all but its inspection.
type inspectedFaultStore struct {
	*faultStore
	idempotency.Inspector
}
