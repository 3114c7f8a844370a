package storefaults

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// Stores that work, but are slow, or do not take values of every size.

const mebibyte = 1 << 20

// answeringBytes is a handler whose answer has n bytes.
func answeringBytes(n int) *guardtest.Counter {
	return &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(strings.Repeat("x", n)))
	}}
}

// A store that takes 4 MiB in a second records an answer of 20 MiB while its client waits, and
// replays it.
func TestSlowStoreRecordsLargeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := answeringBytes(20 * mebibyte)
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithLimits(idempotency.Limits{ResponseBody: 32 * mebibyte}))
		p.Store.Throttle(4 * mebibyte)
		start := time.Now()
		require.Len(t, p.Do(t, guardtest.Call{Key: "k"}).Body, 20*mebibyte)
		require.Equal(t, 5*time.Second, time.Since(start).Truncate(time.Millisecond))
		require.Equal(t, []event.Kind{event.Run}, p.Events.Kinds())

		again := p.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed(), "status %d, %s", again.Status, again.Body)
		require.Len(t, again.Body, 20*mebibyte)
		require.EqualValues(t, 1, h.Runs.Load())
		p.RequireQuiet(t)
	})
}

// Of an answer that the store does not take, it is recorded that the run has happened. The
// handler must not run again when the retention of a claim ends that nobody settles.
func TestAnswerThatTheStoreDoesNotTakeIsNotKept(t *testing.T) {
	down := errors.New("connection reset by peer")
	type row struct {
		limit  func(s *guardtest.FaultStore)
		within time.Duration // the client has its answer
		calls  int           // of Complete, at most
		cause  error
	}
	guardtest.Each(t, map[string]row{
		"too large":                {func(s *guardtest.FaultStore) { s.RefuseAbove(mebibyte, store.ErrTooLarge) }, 0, 2, store.ErrTooLarge},
		"refused without a reason": {func(s *guardtest.FaultStore) { s.RefuseAbove(mebibyte, down) }, time.Second, 7, down},
		"too slow":                 {func(s *guardtest.FaultStore) { s.Throttle(64 << 10) }, 5 * time.Second, 8, nil},
	}, func(t *testing.T, tt row) {
		guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
			h := answeringBytes(2 * mebibyte)
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery,
				idempotency.WithLimits(idempotency.Limits{ResponseBody: 4 * mebibyte}), idempotency.WithTTL(48*time.Hour), idempotency.WithRetention(time.Hour))
			tt.limit(p.Store)
			start := time.Now()
			first := p.Do(t, guardtest.Call{Key: "k"})
			require.Len(t, first.Body, 2*mebibyte, "the client of the run gets all of it")
			require.LessOrEqual(t, time.Since(start), tt.within)

			time.Sleep(2 * time.Hour)
			again := p.Do(t, guardtest.Call{Key: "k"})
			require.EqualValues(t, 1, h.Runs.Load(), "the handler ran again after the retention")
			guardtest.RequireProblem(t, again, http.StatusConflict, problem.ResponseNotKept)
			require.Equal(t, http.StatusCreated, again.Problem.OriginalStatus)
			require.Equal(t, "/charges/1", again.Problem.OriginalLocation)
			require.LessOrEqual(t, p.Store.Count("complete"), tt.calls)
			require.Equal(t, 1, p.Events.Count(event.NotKept))
			for _, e := range p.Events.All() {
				if e.Kind == event.NotKept {
					require.Error(t, e.Err)
					require.True(t, tt.cause == nil || errors.Is(e.Err, tt.cause), "%v", e.Err)
					require.Equal(t, http.StatusCreated, e.Status)
					require.EqualValues(t, 2*mebibyte, e.Size)
				}
			}
			p.RequireQuiet(t)
		})
	})
}

// While the store is away altogether, an answer of any size is kept whole. Its size is not to
// blame, also if the store comes back between two tries.
func TestAnswerOfAnySizeOutlivesAnOutage(t *testing.T) {
	for name, away := range map[string]guardtest.Fault{"refused": guardtest.Refuse, "hanging": guardtest.Hang} {
		for _, outage := range []time.Duration{time.Second, 3 * time.Second, 10 * time.Second, time.Minute} {
			guardtest.Bubble(t, name+" for "+outage.String(), func(t *testing.T) {
				h := answeringBytes(mebibyte / 2)
				p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h)
				for _, op := range []string{"renew", "complete"} {
					p.Store.On(op, guardtest.Always(away))
				}
				time.AfterFunc(outage, p.Store.Heal)
				p.Do(t, guardtest.Call{Key: "k"})
				time.Sleep(2 * time.Minute)
				require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
				require.Zero(t, p.Events.Count(event.NotKept))
				p.RequireQuiet(t)
			})
		}
	}
}

// An answer is not given up because a store fails now and then. Neither is one that it fails to take
// five times in a row, nor one that it fails to take for longer if it fails at other calls, too.
func TestAnswerOutlivesAStoreThatFailsNowAndThen(t *testing.T) {
	every := func(n int) func(int) guardtest.Fault {
		return func(call int) guardtest.Fault {
			if call%n == 0 {
				return guardtest.Refuse
			}
			return nil
		}
	}
	type row struct{ complete, renew func(int) guardtest.Fault }
	guardtest.Each(t, map[string]row{
		"five in a row":       {guardtest.First(5, guardtest.Refuse), guardtest.Always(nil)},
		"with a renewal each": {guardtest.First(20, guardtest.Refuse), every(5)},
	}, func(t *testing.T, tt row) {
		guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
			h := answeringBytes(mebibyte / 2)
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery)
			p.Store.On("complete", tt.complete)
			p.Store.On("renew", tt.renew)
			require.Len(t, p.Do(t, guardtest.Call{Key: "k"}).Body, mebibyte/2)
			time.Sleep(2 * time.Minute)
			again := p.Do(t, guardtest.Call{Key: "k"})
			require.True(t, again.Replayed(), "status %d, %s", again.Status, again.Body)
			require.Len(t, again.Body, mebibyte/2)
			require.EqualValues(t, 1, h.Runs.Load())
			require.Zero(t, p.Events.Count(event.NotKept))
			p.RequireQuiet(t)
		})
	})
}

// A shutdown has little time. An answer that the store does not take is given up sooner, so that the
// process leaves no run behind of which nothing is known.
func TestShutdownGivesUpAnAnswerRatherThanTheRun(t *testing.T) {
	guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		h := answeringBytes(2 * mebibyte)
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, recovery, idempotency.WithLimits(idempotency.Limits{ResponseBody: 4 * mebibyte}))
		p.Store.Throttle(64 << 10)
		require.Len(t, p.Do(t, guardtest.Call{Key: "k"}).Body, 2*mebibyte)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Guard.Shutdown(ctx), "the run is settled")
		require.Equal(t, 1, p.Events.Count(event.NotKept))
		require.Zero(t, p.Events.Count(event.RecordingLost))
	})
}

// A small answer is not worth giving up: it is recorded as soon as Complete works again.
func TestSmallAnswerIsKeptWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), answeringBytes(1000))
		p.Store.On("complete", guardtest.First(50, guardtest.Refuse))
		p.Do(t, guardtest.Call{Key: "k"})
		time.Sleep(10 * time.Minute)
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Zero(t, p.Events.Count(event.NotKept))
	})
}

// A function has run whose result is larger than the store or the guard keeps. Its caller gets
// the result, and later callers learn that it has run.
func TestResultThatIsNotKept(t *testing.T) {
	large := strings.Repeat("x", mebibyte/2)
	type row struct {
		limit func(s *guardtest.FaultStore)
		opts  []idempotency.Option
		event int
	}
	guardtest.Each(t, map[string]row{
		"by the store": {func(s *guardtest.FaultStore) { s.RefuseAbove(mebibyte/4, store.ErrTooLarge) }, nil, 1},
		"by the guard": {func(*guardtest.FaultStore) {}, []idempotency.Option{idempotency.WithLimits(idempotency.Limits{ResponseBody: mebibyte / 4})}, 0},
	}, func(t *testing.T, tt row) {
		guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), &guardtest.Counter{}, append(tt.opts, recovery)...)
			tt.limit(p.Store)
			runs, invoice := 0, idempotency.Key{Scope: "acme", Value: "invoice"}
			do := func(failure error) (string, idempotency.Result, error) {
				return idempotency.Do(t.Context(), p.Guard, invoice, func(context.Context) (string, error) {
					runs++
					return large, failure
				})
			}
			got, result, err := do(nil)
			require.NoError(t, err)
			require.Equal(t, large, got)
			require.Equal(t, idempotency.Result{Attempt: 1, Outcome: idempotency.Final}, result)
			require.Equal(t, tt.event, p.Events.Count(event.NotKept))

			got, result, err = do(nil)
			require.ErrorIs(t, err, idempotency.ErrResultNotKept)
			require.Empty(t, got)
			require.Equal(t, idempotency.Result{Attempt: 1, Outcome: idempotency.Final, Code: problem.ResponseNotKept}, result)
			require.Equal(t, 1, runs)

			// Of a permanent error, the beginning of the text is kept.
			invoice.Value = "declined"
			_, _, err = do(idempotency.Permanent(errors.New("declined: " + large)))
			require.ErrorContains(t, err, large)
			_, _, err = do(nil)
			require.ErrorContains(t, err, "declined: xxx")
			require.Less(t, len(err.Error()), 8<<10)
			require.ErrorIs(t, err, idempotency.ErrPermanent)
			require.Equal(t, 2, runs)
		})
	})
}

// A step that the store can never take is not tried again: nothing would change.
func TestStepThatIsTooLargeIsNotRepeated(t *testing.T) {
	st := guardtest.NewStepFaultStore()
	st.RefuseAbove(100, store.ErrTooLarge)
	g := guardtest.NewGuard(t, st)
	_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "acme", Value: "k"}, func(ctx context.Context) (string, error) {
		return idempotency.Step(ctx, "charge", func(context.Context) (string, error) { return strings.Repeat("x", 200), nil })
	})
	require.ErrorIs(t, err, idempotency.ErrNotRecorded)
	require.ErrorIs(t, err, store.ErrTooLarge)
	require.Equal(t, 1, st.Count("step"))
}

// A full store refuses a further attempt as it refuses a new key. A route that fails open runs the new
// key, and not the other: the steps of its last attempt would be taken again. A store that cannot be asked
// for its records may have one of any key.
func TestFullStoreDoesNotOpenAKeyThatItHas(t *testing.T) {
	guardtest.Each(t, map[string]bool{"asked": true, "cannot be asked": false}, func(t *testing.T, asked bool) {
		steps, large := 0, false
		memory := idempotency.NewMemoryStore(idempotency.WithMaxBytes(4000))
		var s idempotency.Store = memory
		if !asked {
			s = struct {
				idempotency.Store
				store.StepStore
			}{memory, memory}
		}
		g := guardtest.NewGuard(t, s, idempotency.WithFailOpen(true))
		server := guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if large {
				_, _ = w.Write(make([]byte, 3400))
				return
			}
			_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
				steps++
				return 1, nil
			})
			w.WriteHeader(http.StatusInternalServerError)
		})))
		require.Equal(t, http.StatusInternalServerError, server.Do(t, guardtest.Call{Key: "a"}).Status)
		large = true
		require.Equal(t, http.StatusOK, server.Do(t, guardtest.Call{Key: "b"}).Status)
		require.True(t, server.Do(t, guardtest.Call{Key: "b"}).Replayed())
		large = false
		guardtest.RequireProblem(t, server.Do(t, guardtest.Call{Key: "a"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Equal(t, 1, steps)
		unknown := server.Do(t, guardtest.Call{Key: "new"})
		if !asked {
			guardtest.RequireProblem(t, unknown, http.StatusServiceUnavailable, problem.StoreUnavailable)
			return
		}
		require.Equal(t, http.StatusInternalServerError, unknown.Status)
		require.Equal(t, 2, steps)
	})
}
