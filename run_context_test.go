package idempotency_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/problem"
)

// runWith serves one request in a bubble and shows its context to f.
func runWith(client context.Context, t *testing.T, f func(ctx context.Context), opts ...idempotency.Option) {
	t.Helper()
	h := newGuard(t, idempotency.NewMemoryStore(), opts...).Handler(
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
	t.Parallel()
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
			t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var err, cause error
		p := newProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(2 * leaseTime)
			err, cause = r.Context().Err(), context.Cause(r.Context())
		}))
		p.store.on("renew", always(failWith(idempotency.ErrNotOwner)))
		p.do(t, call{key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, cause, idempotency.ErrLeaseLost)
	})
}

// What waits for the store holds on to the answer, and to nothing else of its run.
func TestPendingRunKeepsItsAnswerOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), load.Small)
		p.store.on("complete", always(refuse))
		kept := func() weak.Pointer[load.Caller] {
			c := load.NewCaller(load.Small)
			require.Equal(t, http.StatusCreated, c.Send(p.guard.Handler(load.Small), "k"))
			return weak.Make(c)
		}()
		require.Equal(t, 1, countKind(p.events, idempotency.EventRecordingDelayed))
		runtime.GC()
		require.Nil(t, kept.Value())
		p.store.heal()
		time.Sleep(2 * time.Second) // the longest pause between two tries
		p.requireQuiet(t)
	})
}

// A client that has gone before the run begins does not get one whose failure holds the key.
func TestNoRunForAClientThatHasGone(t *testing.T) {
	t.Parallel()
	h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}}
	p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithClientCancel(true), idempotency.WithRecovery(idempotency.Hold))
	ctx, hangUp := context.WithCancel(t.Context())
	p.store.on("claim", first(1, func(_ context.Context, proceed func() error) error {
		hangUp()
		return proceed()
	}))
	_, _ = p.try(ctx, call{key: "k"})
	require.Zero(t, h.runs.Load())
	require.Equal(t, http.StatusOK, p.do(t, call{key: "k"}).status)
}

// A client that hangs up ends no call of the store, from its claim to the last. What its
// run has done is recorded, or given back, as if it were still there.
func TestClientThatHasGoneEndsNoCallOfTheStore(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]fate{
		http.StatusCreated: replays, http.StatusTooManyRequests: runsNext, http.StatusBadGateway: isHeld,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				store := newStepFaultStore()
				for _, op := range append(storeOps, "step") {
					store.on(op, always(func(ctx context.Context, proceed func() error) error {
						hangUp()
						if ctx.Err() != nil {
							t.Errorf("%s: %v", op, ctx.Err())
							return refuse(ctx, proceed)
						}
						return proceed()
					}))
				}
				h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					time.Sleep(leaseTime / 2)
					_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
					if err != nil {
						t.Error(err)
					}
					w.WriteHeader(status)
				}}
				guard := newGuard(t, store, idempotency.WithLease(leaseTime), idempotency.WithRecovery(idempotency.Hold))
				s := serveRecorder(t, guard.Handler(h))
				_, _ = s.try(client, call{key: "k"})
				require.NoError(t, guard.Shutdown(shortly(t)), "it was settled while the client would have waited")
				require.Equal(t, 1, store.count("renew"))
				s = serveRecorder(t, newGuard(t, store, idempotency.WithRecovery(idempotency.Hold)).Handler(h))
				requireFate(t, s, h, call{key: "k"}, want)
			})
		})
	}
}

// A run that was told to stop, and says that it has done nothing, has not answered.
func TestSilenceOfARunThatDidNothingIsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			op, _ := idempotency.FromContext(r.Context())
			op.SetOutcome(idempotency.NotExecuted)
		}), idempotency.WithRecovery(idempotency.Hold))
		p.store.on("renew", always(refuse))
		requireProblem(t, p.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
	})
}
