package storefaults

import (
	"context"
	"errors"
	"net/http"
	"strings"
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

// A hanging store delays a step no longer than it delays the end of a run.
func TestStepThatCannotBeRecordedEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		st.On("step", guardtest.Always(guardtest.Hang))
		var took time.Duration
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			start := time.Now()
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			took = time.Since(start)
			assert.ErrorIs(t, err, idempotency.ErrNotRecorded)
		})))
		s.Do(t, guardtest.Call{Key: "k"})
		require.LessOrEqual(t, took, 2*time.Second)
		require.Equal(t, 2, st.Count("step"))
	})
}

// If the lease ends while the mark of a step is being recorded, the step does not begin,
// and the mark is removed.
func TestStepIsNotBegunByAMarkThatTookTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		st.On("renew", guardtest.Always(guardtest.Hang))
		st.On("step", guardtest.First(1, guardtest.Hang))
		ran := 0
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithLease(3*time.Second)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				op, _ := idempotency.FromContext(r.Context())
				if op.Attempt() == 1 {
					time.Sleep(2 * time.Second)
				}
				_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
					ran++
					return op.Attempt(), nil
				}, idempotency.AtMostOnce())
				if errors.Is(err, idempotency.ErrLeaseLost) {
					w.WriteHeader(http.StatusInternalServerError)
				}
			})))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Zero(t, ran)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, ran)
	})
}

// The store loses the record of a run that has made a step. The process knows what must not be repeated, and holds the
// key; a step with a derived key may be made again.
func TestStepIsNotForgottenWithItsRecord(t *testing.T) {
	once := []idempotency.TaskOption{idempotency.AtMostOnce()}
	type row struct {
		opts  []idempotency.TaskOption
		fails error // of the step when it is made first
		loses int   // the run that loses its record
		made  int   // how often the step is made
	}
	guardtest.EachInBubble(t, map[string]row{
		"at most once":           {once, nil, 1, 1},
		"at most once, in doubt": {once, errors.New("no answer"), 1, 1},
		"at most once, found":    {once, nil, 2, 1},
		"at most once, not done": {once, idempotency.NotDone(errors.New("refused")), 1, 2},
		"with a derived key":     {nil, nil, 1, 2},
	}, func(t *testing.T, c row) {
		st, events := guardtest.NewStepFaultStore(), &guardtest.Events{}
		runs, made := 0, 0
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithObserver(events.Observe)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
					made++
					if made == 1 {
						return 1, c.fails
					}
					return 1, nil
				}, c.opts...)
				if runs == c.loses {
					st.Replace(idempotency.NewMemoryStore())
				}
				if err != nil || runs <= c.loses {
					w.WriteHeader(http.StatusBadGateway)
				}
			})))
		for range c.loses {
			require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
		}
		next := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, c.made, made)
		if c.made == 2 {
			require.Equal(t, http.StatusOK, next.Status)
			return
		}
		require.Equal(t, problem.OutcomeUnknown, next.Problem.Code)
		require.Equal(t, 1, events.Count(event.Held))
		for _, e := range events.All() {
			require.True(t, e.Kind != event.Held || e.Cause == event.CauseForgotten, "%s", e.Cause)
		}
		require.Equal(t, event.CauseForgotten, guardtest.Lookup(t, guardtest.NewGuard(t, st.Behind), guardtest.HeldKey).Cause)
	})
}

// A run that may have been overtaken starts no further effect. An answer that it gives for
// that reason is not the answer to the request.
func TestStepIsNotBegunWithoutALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		guard := guardtest.NewGuard(t, st, idempotency.WithLease(3*time.Second))
		ran := 0
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if guardtest.Op(r.Context()).Attempt() == 1 {
				st.On("renew", guardtest.Always(guardtest.Hang))
				time.Sleep(4 * time.Second)
				st.Heal()
			}
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
				ran++
				return 0, nil
			})
			if errors.Is(err, idempotency.ErrLeaseLost) {
				assert.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrLeaseLost)
				w.WriteHeader(http.StatusConflict)
			}
		})))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.NoAnswer)
		require.Zero(t, ran)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, ran)
	})
}

// A process that was paused finds its lease over before its own renewals do. Here they are
// late because the observer is slow.
func TestStepNoticesFirstThatTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		st.On("renew", guardtest.Always(guardtest.Refuse))
		guard := guardtest.NewGuard(t, st, idempotency.WithLease(3*time.Second), idempotency.WithObserver(func(_ context.Context, e event.Event) {
			if e.Op == "renew" {
				time.Sleep(10 * time.Second)
			}
		}))
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if op, _ := idempotency.FromContext(r.Context()); op.Attempt() == 1 {
				time.Sleep(4 * time.Second)
			}
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			if errors.Is(err, idempotency.ErrLeaseLost) {
				assert.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrLeaseLost)
				w.WriteHeader(http.StatusConflict) // which must not become the answer
			}
		})))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.NoAnswer)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
	})
}

func TestStepThatCannotBeRecordedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		guard := guardtest.NewGuard(t, st)
		ran := 0
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			st.On("step", guardtest.Always(guardtest.Refuse))
			got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) {
				ran++
				return "ch_1", nil
			})
			if !errors.Is(err, idempotency.ErrNotRecorded) || !strings.Contains(err.Error(), `step "charge"`) || !errors.Is(err, guardtest.ErrDown) || got != "ch_1" {
				t.Errorf("%q, %v", got, err)
			}
			_, err = idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
				t.Error("a step at most once runs without its mark")
				return 0, nil
			}, idempotency.AtMostOnce())
			assert.ErrorIs(t, err, guardtest.ErrDown)
			assert.NotErrorIs(t, err, idempotency.ErrNotRecorded)
			w.WriteHeader(http.StatusInternalServerError)
		})))
		s.Do(t, guardtest.Call{Key: "k"})
		s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, 2, ran, "what is not recorded is run again")
	})
}

// A run does not notice that the store was away, if it comes back in time, or that a reply
// was lost.
func TestStepIsRecordedWhenTheStoreComesBack(t *testing.T) {
	guardtest.EachInBubble(t, map[string]guardtest.Fault{"refused": guardtest.Refuse, "reply lost": guardtest.LoseReply, "hangs": guardtest.Hang}, func(t *testing.T, hit guardtest.Fault) {
		st := guardtest.NewStepFaultStore()
		st.On("step", guardtest.First(1, hit))
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithLease(3*time.Second)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return "ch_1", nil })
				assert.NoError(t, err)
				assert.Equal(t, "ch_1", got)
			})))
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 2, st.Count("step"))
	})
}

// A run that was overtaken without noticing must not change the record of its successor.
func TestStepOfAnOvertakenRunIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := guardtest.NewStepFaultStore()
		guard := guardtest.NewGuard(t, st, idempotency.WithLease(3*time.Second))
		entered := make(chan struct{})
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, _ := idempotency.FromContext(r.Context())
			got, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) {
				if op.Attempt() == 1 {
					st.On("renew", guardtest.Always(guardtest.Hang))
					close(entered)
					time.Sleep(10 * time.Second)
				}
				return op.Attempt(), nil
			})
			assert.False(t, op.Attempt() == 1 && (!errors.Is(err, idempotency.ErrNotRecorded) || !errors.Is(err, store.ErrNotOwner)), "overtaken: %d, %v", got, err)
			if op.Attempt() == 2 {
				st.Heal()
				assert.NoError(t, err)
				assert.Equal(t, 2, got)
				time.Sleep(20 * time.Second)
			}
			w.WriteHeader(http.StatusCreated)
		})))
		done := make(chan guardtest.Reply)
		go func() { done <- s.Attempt(t, guardtest.Call{Key: "k"}) }()
		<-entered
		time.Sleep(5 * time.Second)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		guardtest.RequireProblem(t, <-done, http.StatusConflict, problem.InFlight)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}

// When the store refuses a step, the run has lost its claim. The guard says so without
// waiting for a renewal.
func TestStepThatIsRefusedEndsTheRun(t *testing.T) {
	st := guardtest.NewStepFaultStore()
	st.On("step", guardtest.First(1, guardtest.FailWith(store.ErrNotOwner)))
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		done := func(context.Context) (int, error) { return 1, nil }
		_, err := idempotency.Step(r.Context(), "a", done)
		assert.ErrorIs(t, err, store.ErrNotOwner)
		assert.ErrorIs(t, context.Cause(r.Context()), idempotency.ErrLeaseLost)
		if _, err = idempotency.Step(r.Context(), "b", done); !errors.Is(err, idempotency.ErrLeaseLost) {
			t.Errorf("another effect is begun: %v", err)
		}
		panic(http.ErrAbortHandler)
	})))
	require.Panics(t, func() { _, _ = s.Try(t.Context(), guardtest.Call{Key: "k"}) })
}
