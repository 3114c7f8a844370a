package runtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/race"
	"example.com/idempotency/problem"
)

func TestShutdownWaitsForRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(time.Minute, "done"))
		done := p.Start(t, guardtest.Call{Key: "k"})
		start := time.Now()
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, "done", (<-done).Body)
		require.NoError(t, p.Guard.Shutdown(t.Context()), "it may be called again")
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestShutdownWaitsForPendingRecordings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(0, "done")
		shared := idempotency.NewMemoryStore()
		p, other := guardtest.NewProcess(t, shared, h), guardtest.NewProcess(t, shared, h)
		p.Store.On("complete", guardtest.Always(guardtest.Refuse))
		p.Do(t, guardtest.Call{Key: "k"})
		time.AfterFunc(time.Minute, p.Store.Heal)
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		require.True(t, other.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Zero(t, p.Events.Count(event.RecordingLost))
		p.RequireQuiet(t)
	})
}

// Only the caller's deadline ends the wait for a run that holds its key: nobody else knows when
// the process must end, and a run that is given up is one that nobody has recorded.
func TestShutdownWithoutADeadlineWaitsForTheStore(t *testing.T) {
	for recovery, away := range map[idempotency.Recovery]time.Duration{idempotency.Rerun: time.Hour, idempotency.Hold: 25 * time.Hour} {
		guardtest.Bubble(t, recovery.String(), func(t *testing.T) {
			h := guardtest.Answering(0, "done")
			shared := idempotency.NewMemoryStore()
			p := guardtest.NewProcess(t, shared, h, idempotency.WithRecovery(recovery))
			for _, op := range []string{"renew", "complete", "hold", "release"} {
				p.Store.On(op, guardtest.Always(guardtest.Refuse))
			}
			p.Do(t, guardtest.Call{Key: "k"})
			start := time.Now()
			time.AfterFunc(away, p.Store.Heal)
			require.NoError(t, p.Guard.Shutdown(t.Context()))
			require.InDelta(t, away, time.Since(start), float64(10*time.Second))
			require.True(t, guardtest.NewProcess(t, shared, h).Do(t, guardtest.Call{Key: "k"}).Replayed())
			require.EqualValues(t, 1, h.Runs.Load())
		})
	}
}

func TestShutdownGivesUpAtItsDeadline(t *testing.T) {
	for _, name := range []string{"refused", "hanging", "deaf"} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			hearing := make(chan struct{})
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
			p.Store.On("complete", guardtest.Always(map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang, "deaf": guardtest.Deaf(hearing)}[name]))
			p.Do(t, guardtest.Call{Key: "k"})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			start := time.Now()
			require.ErrorIs(t, p.Guard.Shutdown(ctx), context.DeadlineExceeded)
			require.Equal(t, 10*time.Second, time.Since(start))
			require.Equal(t, 1, p.Events.Count(event.RecordingLost), "the process may end now")
			time.Sleep(2 * time.Second) // a call that hangs is waited for, in the background
			synctest.Wait()
			require.Equal(t, 1, p.Events.Count(event.RecordingLost))
			stats := p.Guard.Stats()
			require.Zero(t, stats.Pending, "nobody settles it any more")
			require.Zero(t, stats.PendingBytes)
			close(hearing)
			p.RequireQuiet(t)
		})
	}
}

// Nothing begins after a shutdown has given up: a request whose resolver is still asked then is refused.
func TestResolverOutlastsAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			w.WriteHeader(http.StatusInternalServerError)
		}}
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold),
			idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				time.Sleep(time.Second)
				return idempotency.Resolution{Outcome: idempotency.Resume}, nil
			}))
		s := guardtest.ServeRecorder(t, g.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		got := s.Start(t, guardtest.Call{Key: "k"})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, g.Shutdown(ctx), context.DeadlineExceeded)
		guardtest.RequireProblem(t, <-got, http.StatusServiceUnavailable, problem.ShuttingDown)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A run that the store fails to settle at the moment is given up too. Its client gets its
// answer all the same.
func TestShutdownGivesUpWhileAClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.On("complete", guardtest.Always(guardtest.Refuse))
		done := p.Start(t, guardtest.Call{Key: "k"})
		require.ErrorIs(t, p.Guard.Shutdown(guardtest.Shortly(t)), context.DeadlineExceeded)
		require.Equal(t, 1, p.Events.Count(event.RecordingLost))
		require.Zero(t, p.Events.Count(event.RunLeft), "one event is enough")
		require.Equal(t, "done", (<-done).Body)
		p.RequireQuiet(t)
		require.Equal(t, 1, p.Events.Count(event.RecordingLost))
	})
}

// A run that goes on after a shutdown has given up keeps its claim. It still records its answer if the
// store is there, in one try.
func TestRunThatOutlivesTheShutdown(t *testing.T) {
	for name, f := range map[string]guardtest.Fault{"recorded": nil, "lost": guardtest.Refuse} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			h := guardtest.Answering(3*guardtest.LeaseTime, "done")
			shared := idempotency.NewMemoryStore()
			p, other := guardtest.NewProcess(t, shared, h), guardtest.NewProcess(t, shared, h)
			p.Store.On("complete", guardtest.Always(f))
			done := p.Start(t, guardtest.Call{Key: "k"})
			require.ErrorIs(t, p.Guard.Shutdown(guardtest.Shortly(t)), context.DeadlineExceeded)
			for range 5 {
				time.Sleep(guardtest.LeaseTime / 2)
				guardtest.RequireProblem(t, other.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
			}
			end := time.Now().Add(guardtest.LeaseTime / 2)
			require.Equal(t, "done", (<-done).Body)
			require.LessOrEqual(t, time.Now(), end)
			if f == nil {
				require.True(t, other.Do(t, guardtest.Call{Key: "k"}).Replayed())
			} else {
				require.Equal(t, 1, p.Events.Count(event.RecordingLost))
			}
			p.RequireQuiet(t)
		})
	}
}

// A shutdown that is given up names the runs that it leaves, so that somebody can look what became of them.
func TestShutdownNamesTheRunsThatItLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(time.Hour, "done"), idempotency.WithLease(30*time.Second))
		hangs := p.Start(t, guardtest.Call{Key: "hangs"})
		time.Sleep(time.Minute)
		young := p.Start(t, guardtest.Call{Key: "young"})
		require.ErrorIs(t, p.Guard.Shutdown(guardtest.Shortly(t)), context.DeadlineExceeded)
		lasted := make(map[string]time.Duration)
		for _, e := range p.Events.All() {
			if e.Kind == event.RunLeft {
				lasted[e.Record] = e.Duration.Round(time.Minute)
				require.ErrorIs(t, e.Err, context.DeadlineExceeded)
			}
		}
		require.ElementsMatch(t, []time.Duration{time.Minute, 0}, slices.Collect(maps.Values(lasted)))
		require.Equal(t, "done", (<-hangs).Body)
		require.Equal(t, "done", (<-young).Body)
	})
}

func TestShutdownEndsWaitsAndRefusesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := guardtest.Answering(time.Minute, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(2*time.Minute))
		done := p.Start(t, guardtest.Call{Key: "k"})
		waiting := p.Start(t, guardtest.Call{Key: "k"})
		follower := p.Start(t, guardtest.Call{Key: "k"})
		shut := make(chan error, 1)
		start := time.Now()
		go func() { shut <- p.Guard.Shutdown(t.Context()) }()
		guardtest.RequireProblem(t, <-waiting, http.StatusConflict, problem.InFlight)
		guardtest.RequireProblem(t, <-follower, http.StatusConflict, problem.InFlight)
		require.Zero(t, time.Since(start))

		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "other"}), http.StatusServiceUnavailable, problem.ShuttingDown)
		sibling := guardtest.ServeRecorder(t, p.Guard.With(idempotency.WithTTL(time.Hour)).Handler(h))
		guardtest.RequireProblem(t, sibling.Do(t, guardtest.Call{Key: "other"}), http.StatusServiceUnavailable, problem.ShuttingDown)
		require.Equal(t, "done", p.Do(t, guardtest.Call{}).Body, "without a key there is nothing to refuse")

		require.Equal(t, "done", (<-done).Body)
		require.NoError(t, <-shut)
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// What waits for the store to come back is bounded by bytes: beyond, it is recorded that
// a request ran, without its answer.
func TestPendingAnswersAreBoundedByBytes(t *testing.T) {
	race.SkipSequence(t)
	synctest.Test(t, func(t *testing.T) {
		const size, fit = 8 << 20, 7 // of 64 MiB: the eighth has a header as well
		body := strings.Repeat("x", size)
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Location", "/charges/1")
			_, _ = io.WriteString(w, body)
		}}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithLimits(idempotency.Limits{ResponseBody: size + 100}))
		for _, op := range []string{"complete", "renew"} { // or the size would be to blame
			p.Store.On(op, guardtest.Always(guardtest.Refuse))
		}
		for i := range fit + 2 {
			require.Len(t, p.Do(t, guardtest.Call{Key: fmt.Sprint(i)}).Body, size)
		}
		p.Store.Heal()
		time.Sleep(5 * time.Second)
		for i := range fit + 2 {
			got := p.Do(t, guardtest.Call{Key: fmt.Sprint(i)})
			if i < fit {
				require.True(t, got.Replayed())
				require.Len(t, got.Body, size)
				continue
			}
			guardtest.RequireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
			require.Equal(t, "/charges/1", got.Problem.OriginalLocation)
		}
		require.EqualValues(t, fit+2, h.Runs.Load())
		require.Zero(t, p.Events.Count(event.RecordingLost))

		// The room is given back.
		p.Store.Fail(guardtest.Refuse)
		p.Store.On("claim", nil)
		time.AfterFunc(time.Minute, p.Store.Heal)
		p.Do(t, guardtest.Call{Key: "after"})
		time.Sleep(2 * time.Minute)
		require.True(t, p.Do(t, guardtest.Call{Key: "after"}).Replayed())
	})
}

// It is bounded by number too. What is dropped is reported, and left to its lease.
func TestPendingAnswersAreBoundedByNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fit, over = 4096, 3
		h := guardtest.Answering(0, "done")
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
		p.Store.On("complete", guardtest.Always(guardtest.Refuse))
		defer p.Store.Heal() // or what waits would go on for a day
		guardtest.Together(fit+over, func(i int) {
			if got := p.Attempt(t, guardtest.Call{Key: fmt.Sprint(i)}); got.Body != "done" {
				t.Errorf("request %d: %d %s", i, got.Status, got.Body)
			}
		})
		require.Equal(t, fit, p.Events.Count(event.RecordingDelayed))
		require.Equal(t, over, p.Events.Count(event.RecordingLost))
		p.Store.Heal()
		time.Sleep(5 * time.Second)
		replayed := 0
		for i := range fit + over {
			if p.Do(t, guardtest.Call{Key: fmt.Sprint(i)}).Replayed() {
				replayed++
			}
		}
		require.Equal(t, fit, replayed)
	})
}
