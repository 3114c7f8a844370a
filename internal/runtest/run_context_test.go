package runtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// runWith serves one request in a bubble and shows its context to f.
func runWith(client context.Context, t *testing.T, f func(ctx context.Context), opts ...idempotency.Option) {
	t.Helper()
	h := guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f(r.Context())
			w.WriteHeader(http.StatusNoContent) // of one that says nothing the guard looks itself
		}))
	c := load.NewCaller(load.Small)
	c.Request = c.Request.WithContext(client)
	c.Send(h, "k")
}

type valueKey struct{}

// A handler cannot tell that its context is made when it looks at it: here it looks at
// one thing at a time, before and after everything that can end it.
func TestRunContextWhenever(t *testing.T) {
	cause := context.Canceled // what the client's end must not be mistaken for
	looks := map[string]func(t *testing.T, ctx context.Context, ended bool){
		"err": func(t *testing.T, ctx context.Context, ended bool) {
			require.Equal(t, ended, ctx.Err() != nil)
		},
		"done": func(t *testing.T, ctx context.Context, ended bool) {
			select {
			case <-ctx.Done():
				require.True(t, ended)
			default:
				require.False(t, ended)
			}
		},
		"cause": func(t *testing.T, ctx context.Context, ended bool) {
			if ended {
				require.ErrorIs(t, context.Cause(ctx), cause)
			} else {
				require.NoError(t, context.Cause(ctx))
			}
		},
		"child": func(t *testing.T, ctx context.Context, ended bool) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			require.Equal(t, ended, child.Err() != nil)
		},
		"value": func(t *testing.T, ctx context.Context, _ bool) {
			require.Equal(t, "v", ctx.Value(valueKey{}))
			_, ok := idempotency.FromContext(ctx)
			require.True(t, ok)
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			var run context.Context
			client, hangUp := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "v"))
			runWith(client, t, func(ctx context.Context) {
				run = ctx
				hangUp(http.ErrAbortHandler)
				look(t, ctx, false)
			})
			look(t, run, true)
			runWith(client, t, func(ctx context.Context) { run = ctx })
			look(t, run, true)
		})
	}
}

// The request's deadline is the run's, also if nobody looks before it has passed.
func TestRunContextKeepsTheDeadline(t *testing.T) {
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			client, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			want, _ := client.Deadline()
			runWith(client, t, func(ctx context.Context) {
				got, ok := ctx.Deadline()
				require.True(t, ok)
				require.Equal(t, want, got)
				if early {
					require.NoError(t, ctx.Err())
				}
				cancel()
				time.Sleep(time.Minute - time.Nanosecond)
				if early {
					require.NoError(t, ctx.Err())
				}
				time.Sleep(2 * time.Nanosecond)
				synctest.Wait()
				require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				require.ErrorIs(t, context.Cause(ctx), context.DeadlineExceeded)
			})
		})
	}
}

// With WithClientCancel the client's end is the run's, and its cause is told.
func TestRunContextFollowsTheClient(t *testing.T) {
	client, hangUp := context.WithCancelCause(t.Context())
	runWith(client, t, func(ctx context.Context) {
		hangUp(http.ErrAbortHandler)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), http.ErrAbortHandler)
	}, idempotency.WithClientCancel(true))
}

// A lease that is lost before the handler has looked at its context has ended it all the
// same, with its cause.
func TestLostLeaseIsSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var err, cause error
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * guardtest.LeaseTime)
			err, cause = r.Context().Err(), context.Cause(r.Context())
		}))
		p.Store.On("renew", guardtest.Always(guardtest.FailWith(store.ErrNotOwner)))
		p.Do(t, guardtest.Call{Key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, cause, idempotency.ErrLeaseLost)
	})
}

// What waits for the store holds on to the answer, and to nothing else of its run.
func TestPendingRunKeepsItsAnswerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), load.Small)
		p.Store.On("complete", guardtest.Always(guardtest.Refuse))
		kept := func() weak.Pointer[load.Caller] {
			c := load.NewCaller(load.Small)
			require.Equal(t, http.StatusCreated, c.Send(p.Guard.Handler(load.Small), "k"))
			return weak.Make(c)
		}()
		require.Equal(t, 1, p.Events.Count(event.RecordingDelayed))
		runtime.GC()
		require.Nil(t, kept.Value())
		p.Store.Heal()
		time.Sleep(2 * time.Second) // the longest pause between two tries
		p.RequireQuiet(t)
	})
}

// A client that has gone before the run begins does not get one whose failure holds the key.
func TestNoRunForAClientThatHasGone(t *testing.T) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}}
	p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithClientCancel(true), idempotency.WithRecovery(idempotency.Hold))
	ctx, hangUp := context.WithCancel(t.Context())
	p.Store.On("claim", guardtest.First(1, func(_ context.Context, proceed func() error) error {
		hangUp()
		return proceed()
	}))
	_, _ = p.Try(ctx, guardtest.Call{Key: "k"})
	require.Zero(t, h.Runs.Load())
	require.Equal(t, http.StatusOK, p.Do(t, guardtest.Call{Key: "k"}).Status)
}

// A client that hangs up ends no call of the store, from its claim to the last. What its
// run has done is recorded, or given back, as if it were still there.
func TestClientThatHasGoneEndsNoCallOfTheStore(t *testing.T) {
	for status, want := range map[int]guardtest.Fate{
		http.StatusCreated: guardtest.Replays, http.StatusTooManyRequests: guardtest.RunsNext, http.StatusBadGateway: guardtest.IsHeld,
	} {
		guardtest.Bubble(t, http.StatusText(status), func(t *testing.T) {
			client, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			st := guardtest.NewStepFaultStore()
			for _, op := range append(guardtest.StoreOps, "step") {
				st.On(op, guardtest.Always(func(ctx context.Context, proceed func() error) error {
					hangUp()
					if ctx.Err() != nil {
						t.Errorf("%s: %v", op, ctx.Err())
						return guardtest.Refuse(ctx, proceed)
					}
					return proceed()
				}))
			}
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				time.Sleep(guardtest.LeaseTime / 2)
				_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
				if err != nil {
					t.Error(err)
				}
				if status == http.StatusTooManyRequests { // the status alone would not outvote the step
					guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
				}
				w.WriteHeader(status)
			}}
			guard := guardtest.NewGuard(t, st, idempotency.WithLease(guardtest.LeaseTime), idempotency.WithRecovery(idempotency.Hold))
			s := guardtest.ServeRecorder(t, guard.Handler(h))
			_, _ = s.Try(client, guardtest.Call{Key: "k"})
			require.NoError(t, guard.Shutdown(guardtest.Shortly(t)), "it was settled while the client would have waited")
			require.Equal(t, 1, st.Count("renew"))
			s = guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold)).Handler(h))
			guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, want)
		})
	}
}

// The run goes on when its client has gone, and the answer waits for the next try.
func TestClientGoneDuringTheRunFindsTheAnswer(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		entered, gone := make(chan struct{}), make(chan struct{})
		h := &guardtest.Counter{}
		disconnect := make(chan struct{})
		h.Handler = func(w http.ResponseWriter, r *http.Request, _ int64) {
			close(entered)
			<-disconnect
			if err := r.Context().Err(); err != nil {
				t.Error(err, "the run's context ended with its client")
			}
			_, _ = io.WriteString(w, "done")
		}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
		s := serve(guardtest.Noticing(gone, guarded))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { <-entered; cancel() }()
		_, err := s.Try(ctx, guardtest.Call{Key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		<-gone // the server has noticed
		close(disconnect)
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, "done", got.Body)
		require.True(t, got.Replayed())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// The cause of a run's end by its caller's deadline is the caller's.
func TestRunContextHasTheCauseOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooSlow := errors.New("the budget of this route is over")
		client, stop := context.WithTimeoutCause(t.Context(), time.Second, tooSlow)
		defer stop()
		runWith(client, t, func(ctx context.Context) {
			<-ctx.Done()
			require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			synctest.Wait() // the timers of both are due at the same moment
			require.ErrorIs(t, context.Cause(ctx), tooSlow)
		})
	})
}

// No run begins when its time is over: the claim is given back, under Hold too.
func TestNoRunBeginsAfterItsDeadline(t *testing.T) {
	guardtest.BubbleOnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		st := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
		st.On("claim", func(int) guardtest.Fault {
			return func(_ context.Context, call func() error) error {
				time.Sleep(1500 * time.Millisecond)
				return call()
			}
		})
		h := &guardtest.Counter{}
		p := guardtest.NewProcess(t, st, h, recovery)
		client, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		got, err := p.Try(client, guardtest.Call{Key: "k"})
		if err == nil {
			guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.TryLater)
		}
		require.Zero(t, h.Runs.Load())
		st.Heal()
		require.False(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}
