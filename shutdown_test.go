package idempotency_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

func TestShutdownWaitsForRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), answering(time.Minute, "done"))
		done := p.start(t, call{key: "k"})
		start := time.Now()
		require.NoError(t, p.guard.Shutdown(t.Context()))
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, "done", (<-done).body)
		require.NoError(t, p.guard.Shutdown(t.Context()), "it may be called again")
		require.Equal(t, time.Minute, time.Since(start))
	})
}

func TestShutdownWaitsForPendingRecordings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(0, "done")
		shared := idempotency.NewMemoryStore()
		p, other := newProcess(t, shared, h), newProcess(t, shared, h)
		p.store.on("complete", always(refuse))
		p.do(t, call{key: "k"})
		time.AfterFunc(time.Minute, p.store.heal)
		require.NoError(t, p.guard.Shutdown(t.Context()))
		require.True(t, other.do(t, call{key: "k"}).replayed())
		require.Zero(t, countKind(p.events, idempotency.EventRecordingLost))
		p.requireQuiet(t)
	})
}

func TestShutdownGivesUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"refused", "hanging", "deaf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hearing := make(chan struct{})
				p := newProcess(t, idempotency.NewMemoryStore(), answering(0, "done"))
				p.store.on("complete", always(map[string]fault{"refused": refuse, "hanging": hang, "deaf": deaf(hearing)}[name]))
				p.do(t, call{key: "k"})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				start := time.Now()
				require.ErrorIs(t, p.guard.Shutdown(ctx), context.DeadlineExceeded)
				require.Equal(t, 10*time.Second, time.Since(start))
				require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingLost), "the process may end now")
				time.Sleep(2 * time.Second) // a call that hangs is waited for, in the background
				synctest.Wait()
				require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingLost))
				close(hearing)
				p.requireQuiet(t)
			})
		})
	}
}

// A run that the store fails to settle at the moment is given up too. Its client gets its
// answer all the same.
func TestShutdownGivesUpWhileAClientWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), answering(0, "done"))
		p.store.on("complete", always(refuse))
		done := p.start(t, call{key: "k"})
		require.ErrorIs(t, p.guard.Shutdown(shortly(t)), context.DeadlineExceeded)
		require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingLost))
		require.Equal(t, "done", (<-done).body)
		p.requireQuiet(t)
		require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingLost))
	})
}

// A run that goes on after a shutdown has given up still records its answer if the store
// is there, in one try.
func TestRunThatOutlivesTheShutdown(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"recorded": nil, "lost": refuse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(20*time.Second, "done")
				shared := idempotency.NewMemoryStore()
				p, other := newProcess(t, shared, h), newProcess(t, shared, h)
				p.store.on("complete", always(f))
				done := p.start(t, call{key: "k"})
				require.ErrorIs(t, p.guard.Shutdown(shortly(t)), context.DeadlineExceeded)
				start := time.Now()
				require.Equal(t, "done", (<-done).body)
				require.Equal(t, 19*time.Second, time.Since(start))
				if f == nil {
					require.True(t, other.do(t, call{key: "k"}).replayed())
				} else {
					require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingLost))
				}
				p.requireQuiet(t)
			})
		})
	}
}

func TestShutdownEndsWaitsAndRefusesKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(time.Minute, "done")
		p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(2*time.Minute))
		done := p.start(t, call{key: "k"})
		waiting := p.start(t, call{key: "k"})
		follower := p.start(t, call{key: "k"})
		shut := make(chan error, 1)
		start := time.Now()
		go func() { shut <- p.guard.Shutdown(t.Context()) }()
		requireProblem(t, <-waiting, http.StatusConflict, problem.InFlight)
		requireProblem(t, <-follower, http.StatusConflict, problem.InFlight)
		require.Zero(t, time.Since(start))

		requireProblem(t, p.do(t, call{key: "other"}), http.StatusServiceUnavailable, problem.ShuttingDown)
		sibling := serveRecorder(t, p.guard.With(idempotency.WithTTL(time.Hour)).Handler(h))
		requireProblem(t, sibling.do(t, call{key: "other"}), http.StatusServiceUnavailable, problem.ShuttingDown)
		require.Equal(t, "done", p.do(t, call{}).body, "without a key there is nothing to refuse")

		require.Equal(t, "done", (<-done).body)
		require.NoError(t, <-shut)
		require.EqualValues(t, 2, h.runs.Load())
	})
}

// What waits for the store to come back is bounded by bytes: beyond, it is recorded that
// a request ran, without its answer.
func TestPendingAnswersAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, fit = 8 << 20, 7 // of 64 MiB: the eighth has a header as well
		body := strings.Repeat("x", size)
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Location", "/charges/1")
			_, _ = io.WriteString(w, body)
		}}
		p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithMaxResponseBody(size))
		p.store.on("complete", always(refuse))
		for i := range fit + 2 {
			require.Len(t, p.do(t, call{key: fmt.Sprint(i)}).body, size)
		}
		p.store.heal()
		time.Sleep(5 * time.Second)
		for i := range fit + 2 {
			got := p.do(t, call{key: fmt.Sprint(i)})
			if i < fit {
				require.True(t, got.replayed())
				require.Len(t, got.body, size)
				continue
			}
			requireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
			require.Equal(t, "/charges/1", got.problem.OriginalLocation)
		}
		require.EqualValues(t, fit+2, h.runs.Load())
		require.Zero(t, countKind(p.events, idempotency.EventRecordingLost))

		// The room is given back.
		p.store.on("complete", between(1, p.store.count("complete")+20, refuse))
		p.do(t, call{key: "after"})
		time.Sleep(2 * time.Minute)
		require.True(t, p.do(t, call{key: "after"}).replayed())
	})
}

// It is bounded by number too. What is dropped is reported, and left to its lease.
func TestPendingAnswersAreBoundedByNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const fit, over = 4096, 3
		h := answering(0, "done")
		p := newProcess(t, idempotency.NewMemoryStore(), h)
		p.store.on("complete", always(refuse))
		defer p.store.heal() // or what waits would go on for a day
		var wg sync.WaitGroup
		for i := range fit + over {
			wg.Go(func() {
				if got := p.attempt(t, call{key: fmt.Sprint(i)}); got.body != "done" {
					t.Errorf("request %d: %d %s", i, got.status, got.body)
				}
			})
		}
		wg.Wait()
		require.Equal(t, fit, countKind(p.events, idempotency.EventRecordingDelayed))
		require.Equal(t, over, countKind(p.events, idempotency.EventRecordingLost))
		p.store.heal()
		time.Sleep(5 * time.Second)
		replayed := 0
		for i := range fit + over {
			if p.do(t, call{key: fmt.Sprint(i)}).replayed() {
				replayed++
			}
		}
		require.Equal(t, fit, replayed)
	})
}
