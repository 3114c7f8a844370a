package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
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

var invoiceKey = idempotency.Key{Scope: "billing", Value: "invoice-7"}

func TestDoRunsOnceAndReplaysTheValue(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	ran := 0
	for i := range 3 {
		got, result, err := idempotency.Do(t.Context(), g, invoiceKey, func(ctx context.Context) ([]string, error) {
			ran++
			op, ok := idempotency.FromContext(ctx)
			if !ok || op.Key() != (idempotency.Key{Scope: "billing", Value: "invoice-7"}) || op.Attempt() != 1 || !op.Valid() {
				t.Errorf("operation %v %v", op, ok)
			}
			return []string{"sent", fmt.Sprint(ran)}, nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{"sent", "1"}, got)
		require.Equal(t, idempotency.Result{Replayed: i > 0, Attempt: 1, Outcome: idempotency.Final}, result)
	}
	require.Equal(t, 1, ran)
}

func TestDoErrors(t *testing.T) {
	failed := errors.New("failed")
	run := func(t *testing.T, g *idempotency.Guard, err error) (idempotency.Result, error) {
		_, result, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (int, error) { return 0, err })
		return result, err
	}
	t.Run("are not recorded and run again", func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		for attempt := 1; attempt <= 3; attempt++ {
			result, err := run(t, g, failed)
			require.ErrorIs(t, err, failed)
			require.Equal(t, idempotency.Result{Attempt: attempt, Outcome: idempotency.Unknown}, result)
		}
	})
	t.Run("hold the key", func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
		_, err := run(t, g, failed)
		require.ErrorIs(t, err, failed)
		_, err = run(t, g, nil)
		require.ErrorIs(t, err, idempotency.ErrHeld)
	})
	t.Run("permanent ones are recorded", func(t *testing.T) {
		for _, marked := range []error{idempotency.Permanent(failed), fmt.Errorf("%w: %w", failed, idempotency.ErrPermanent)} {
			g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
			_, err := run(t, g, marked)
			require.ErrorIs(t, err, failed)
			result, err := run(t, g, nil)
			require.ErrorIs(t, err, idempotency.ErrPermanent)
			require.EqualError(t, err, marked.Error())
			require.True(t, result.Replayed)
		}
	})
	t.Run("SetOutcome overrides", func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
		_, _, err := idempotency.Do(t.Context(), g, invoiceKey, func(ctx context.Context) (int, error) {
			guardtest.Op(ctx).SetOutcome(idempotency.NotExecuted)
			return 5, nil
		})
		require.NoError(t, err)
		result, err := run(t, g, nil)
		require.NoError(t, err)
		require.Equal(t, idempotency.Result{Attempt: 2, Outcome: idempotency.Final}, result)
	})
}

func TestDoSettlesPanicAndGoexit(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("boom") },
		"goexit": runtime.Goexit,
	} {
		for recovery, want := range map[idempotency.Recovery]error{
			idempotency.Rerun: nil,
			idempotency.Hold:  idempotency.ErrHeld,
		} {
			t.Run(name+" "+recovery.String(), func(t *testing.T) {
				g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(recovery))
				var recovered any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { recovered = recover() }()
					_, _, _ = idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (int, error) { end(); return 0, nil })
				}()
				<-done
				if name == "panic" {
					require.Equal(t, "boom", recovered)
				}
				_, result, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (int, error) { return 0, nil })
				require.ErrorIs(t, err, want)
				if want == nil {
					require.Equal(t, 2, result.Attempt)
				}
			})
		}
	}
}

func TestDoRefusals(t *testing.T) {
	ok := func(context.Context) (string, error) { return "done", nil }
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	do := func(k idempotency.Key, payload string) error {
		_, _, err := idempotency.Do(t.Context(), g, k, ok, idempotency.WithPayload([]byte(payload)))
		return err
	}
	require.NoError(t, do(invoiceKey, "a"))
	require.NoError(t, do(invoiceKey, "a"))
	require.ErrorIs(t, do(invoiceKey, "b"), idempotency.ErrKeyReused)
	require.NoError(t, do(idempotency.Key{Scope: "other", Value: invoiceKey.Value}, "b"))
	require.NoError(t, do(idempotency.Key{Scope: store.Shared, Value: invoiceKey.Value}, "b"))
	require.ErrorContains(t, do(idempotency.Key{Value: "k"}, ""), "Scope")
	require.ErrorContains(t, do(idempotency.Key{Scope: "s"}, ""), "1 to 255")
	require.ErrorContains(t, do(idempotency.Key{Scope: "s", Value: strings.Repeat("k", 256)}, ""), "1 to 255")

	entered, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	key := idempotency.Key{Scope: "s", Value: "in flight"}
	go func() {
		_, _, err := idempotency.Do(t.Context(), g, key, func(context.Context) (int, error) {
			close(entered)
			<-leave
			return 0, nil
		})
		done <- err
	}()
	<-entered
	require.ErrorIs(t, do(key, ""), idempotency.ErrInFlight)
	close(leave)
	require.NoError(t, <-done)

	require.NoError(t, g.Shutdown(t.Context()))
	require.ErrorIs(t, do(invoiceKey, "a"), idempotency.ErrShutdown)
}

// A key that cannot be claimed runs nothing, unless the guard fails open; and not even then
// over a record that cannot be read.
func TestDoWithoutItsStore(t *testing.T) {
	type row struct {
		opt  idempotency.Option
		err  error
		runs int
	}
	guardtest.EachInBubble(t, map[string]row{
		"away":                   {nil, guardtest.ErrDown, 0},
		"away, fails open":       {idempotency.WithFailOpen(true), guardtest.ErrDown, 1},
		"unreadable":             {nil, idempotency.ErrCorrupt, 0},
		"unreadable, fails open": {idempotency.WithFailOpen(true), idempotency.ErrCorrupt, 0},
	}, func(t *testing.T, tt row) {
		store := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
		store.On("claim", guardtest.Always(guardtest.FailWith(tt.err)))
		seen := &guardtest.Events{}
		g := guardtest.NewGuard(t, store, tt.opt, idempotency.WithObserver(seen.Observe))
		runs := 0
		got, result, err := idempotency.Do(t.Context(), g, invoiceKey, func(ctx context.Context) (string, error) {
			runs++
			if _, ok := idempotency.FromContext(ctx); ok {
				t.Error("an unprotected run has an operation")
			}
			return "done", nil
		})
		require.Equal(t, tt.runs, runs)
		if runs == 0 {
			require.ErrorIs(t, err, tt.err)
			require.Empty(t, got)
			return
		}
		require.NoError(t, err)
		require.Equal(t, "done", got)
		require.Equal(t, idempotency.Result{Attempt: 1}, result)
		require.Contains(t, seen.Kinds(), event.FailOpen)
	})
}

// A value whose type cannot be encoded has happened all the same.
func TestDoHoldsWhatCannotBeRecorded(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	_, _, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (func(), error) { return nil, nil })
	require.ErrorContains(t, err, "cannot be recorded")
	_, _, err = idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (func(), error) { return nil, nil })
	require.ErrorIs(t, err, idempotency.ErrHeld)
}

type panicking struct{}

func (panicking) MarshalJSON() ([]byte, error) { panic("expected by the test") }

// So has one whose encoding panics. The claim ends with the run: it is not renewed for as
// long as the process lives.
func TestDoHoldsWhatPanicsInItsCodec(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	do := func() error {
		_, _, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (panicking, error) { return panicking{}, nil })
		return err
	}
	require.PanicsWithValue(t, "expected by the test", func() { _ = do() })
	require.ErrorIs(t, do(), idempotency.ErrHeld)
}

func TestDoKeepsTheCallersCancellation(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := idempotency.Do(ctx, g, invoiceKey, func(ctx context.Context) (int, error) {
		cancel()
		<-ctx.Done()
		return 0, ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	_, result, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (int, error) { return 1, nil })
	require.NoError(t, err)
	require.Equal(t, 2, result.Attempt, "the cancelled run was settled")
}

// Nothing is run for a caller that has given up, and so nothing is held.
func TestDoOfACancelledCallerRunsNothing(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("consumer is stopped")
	cancel(stopped)
	_, _, err := idempotency.Do(ctx, g, invoiceKey, func(context.Context) (int, error) {
		t.Error("a run for nobody")
		return 0, nil
	})
	require.ErrorIs(t, err, stopped)
	_, err = g.Lookup(t.Context(), invoiceKey)
	require.ErrorIs(t, err, idempotency.ErrNotFound)
}

// A value of another type than the recorded one is an error, and not half a value.
func TestDoOfAnotherTypeReturnsNothing(t *testing.T) {
	events := &guardtest.Events{}
	type pair struct{ A, B any }
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe))
	_, _, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (pair, error) { return pair{1, "x"}, nil })
	require.NoError(t, err)
	type other struct{ A, B int }
	got, _, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (other, error) { return other{}, nil })
	require.ErrorIs(t, err, idempotency.ErrCorrupt)
	require.Zero(t, got)
	require.Equal(t, 1, events.Count(event.Corrupt))
}

// Who has to stop waiting is told both: that there is a run, and why there is no waiting for
// its end.
func TestDoWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute))
		go func() {
			_, _, err := idempotency.Do(t.Context(), g, invoiceKey, func(context.Context) (int, error) {
				time.Sleep(10 * time.Second)
				return 1, nil
			})
			assert.NoError(t, err)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := idempotency.Do(ctx, g, invoiceKey, func(context.Context) (int, error) { return 2, nil })
		require.ErrorIs(t, err, idempotency.ErrInFlight)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// A thousand consumers in two processes get fifty messages, all of them at once.
func TestDoStorm(t *testing.T) {
	const callers, keys = 1000, 50
	for name, store := range guardtest.SharedStores {
		t.Run(name, func(t *testing.T) {
			behind := store(t)
			guards := []*idempotency.Guard{
				guardtest.NewGuard(t, behind, idempotency.WithWait(time.Minute)),
				guardtest.NewGuard(t, behind, idempotency.WithWait(time.Minute)),
			}
			var runs [keys]atomic.Int64
			var fresh atomic.Int64
			var all sync.WaitGroup
			begin, start := time.Now(), make(chan struct{})
			for i := range callers {
				all.Go(func() {
					<-start
					k := i % keys
					key := idempotency.Key{Scope: "queue", Value: fmt.Sprintf("message-%d", k)}
					deliver := func() (string, idempotency.Result, error) {
						return idempotency.Do(t.Context(), guards[i/keys%2], key, func(context.Context) (string, error) {
							return fmt.Sprintf("value %d of %d", runs[k].Add(1), k), nil
						})
					}
					got, result, err := deliver()
					for errors.Is(err, context.DeadlineExceeded) && time.Since(begin) < 5*time.Minute {
						got, result, err = deliver() // on a busy machine a queue delivers again
					}
					if want := fmt.Sprintf("value 1 of %d", k); err != nil || got != want {
						t.Errorf("caller %d got %q, %v; want %q", i, got, err, want)
					}
					if !result.Replayed {
						fresh.Add(1)
					}
				})
			}
			close(start)
			all.Wait()
			for k := range runs {
				require.EqualValues(t, 1, runs[k].Load(), "key %d", k)
			}
			require.EqualValues(t, keys, fresh.Load())
		})
	}
}

// A caller that has gone by the time the key is claimed gets no run, whose failure would
// hold the key.
func TestDoForACallerThatHasGone(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	store := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
	store.On("claim", guardtest.First(1, func(_ context.Context, proceed func() error) error {
		cancel(gone)
		return proceed()
	}))
	g := guardtest.NewGuard(t, store, idempotency.WithRecovery(idempotency.Hold))
	runs := 0
	run := func(ctx context.Context) (int, error) { runs++; return runs, ctx.Err() }
	_, _, err := idempotency.Do(ctx, g, invoiceKey, run)
	require.ErrorIs(t, err, gone)
	require.Zero(t, runs)
	got, _, err := idempotency.Do(t.Context(), g, invoiceKey, run)
	require.NoError(t, err)
	require.Equal(t, 1, got)
}

// A function that asks for its own key would wait for its own end.
func TestDoInsideItsOwnRunIsRefused(t *testing.T) {
	store := idempotency.NewMemoryStore()
	guard := guardtest.NewGuard(t, store, idempotency.WithWait(time.Minute))
	other := guardtest.NewGuard(t, store, idempotency.WithWait(time.Minute))
	key := idempotency.Key{Scope: "jobs", Value: "k"}
	_, _, err := idempotency.Do(t.Context(), guard, key, func(ctx context.Context) (int, error) {
		_, _, err := idempotency.Do(ctx, other, key, func(context.Context) (int, error) { return 2, nil })
		return 1, err
	})
	require.ErrorIs(t, err, idempotency.ErrNested)
}

// A verdict is a value that says how its run has ended.
type verdict struct {
	Says      idempotency.Outcome
	Text      string
	IsRefusal bool
}

func (v verdict) Outcome() idempotency.Outcome { return v.Says }
func (v verdict) Refused() bool                { return v.IsRefusal }

func TestJudgedValueDecides(t *testing.T) {
	do := func(t *testing.T, g *idempotency.Guard, f func(context.Context) (verdict, error)) (verdict, idempotency.Result) {
		got, result, err := idempotency.Do(t.Context(), g, invoiceKey, f)
		require.NoError(t, err)
		return got, result
	}
	returns := func(v verdict) func(context.Context) (verdict, error) {
		return func(context.Context) (verdict, error) { return v, nil }
	}
	step := func(v verdict) func(context.Context) (verdict, error) {
		return func(ctx context.Context) (verdict, error) {
			_, err := idempotency.Step(ctx, "step", func(context.Context) (int, error) { return 1, nil })
			return v, err
		}
	}
	chosen := idempotency.WithOutcome(idempotency.DefaultOutcome)
	final, undone, unknown := verdict{Says: idempotency.Final}, verdict{Says: idempotency.NotExecuted}, verdict{Says: idempotency.Unknown}
	type row struct {
		f    func(context.Context) (verdict, error)
		opts []idempotency.Option
		want idempotency.Outcome
	}
	guardtest.Each(t, map[string]row{
		"final":                      {f: returns(final), want: idempotency.Final},
		"not executed":               {f: returns(undone), want: idempotency.NotExecuted},
		"unknown":                    {f: returns(unknown), want: idempotency.Unknown},
		"nonsense":                   {f: returns(verdict{Says: 9}), want: idempotency.Unknown},
		"not executed, after a step": {f: step(undone), want: idempotency.Unknown},
		"by a function":              {f: step(undone), opts: []idempotency.Option{chosen}, want: idempotency.NotExecuted},
		"overridden": {f: func(ctx context.Context) (verdict, error) {
			guardtest.Op(ctx).SetOutcome(idempotency.Final)
			return unknown, nil
		}, want: idempotency.Final},
	}, func(t *testing.T, tt row) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), tt.opts...)
		got, result := do(t, g, tt.f)
		require.Equal(t, idempotency.Result{Attempt: 1, Outcome: tt.want}, result)
		_, result = do(t, g, returns(verdict{Says: idempotency.Final, Text: "second"}))
		require.Equal(t, idempotency.Result{
			Replayed: tt.want == idempotency.Final, Attempt: result.Attempt, Outcome: idempotency.Final,
		}, result)
		require.Equal(t, tt.want == idempotency.Final, result.Attempt == 1)
		require.Empty(t, got.Text)
	})
	t.Run("held", func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
		_, result := do(t, g, returns(unknown))
		require.Equal(t, idempotency.Result{Attempt: 1, Outcome: idempotency.Unknown, Held: true}, result)
		_, result, err := idempotency.Do(t.Context(), g, invoiceKey, returns(final))
		require.ErrorIs(t, err, idempotency.ErrHeld)
		require.Equal(t, idempotency.Result{Attempt: 1, Outcome: idempotency.Unknown, Held: true, Code: problem.OutcomeUnknown}, result)
	})
}

// A run that has lost its lease may refuse because it was told to stop.
func TestRefusalOfALostJobSaysNothing(t *testing.T) {
	for _, refusal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
			store.On("renew", guardtest.Always(guardtest.Refuse))
			g := guardtest.NewGuard(t, store)
			_, result, err := idempotency.Do(t.Context(), g, invoiceKey, func(ctx context.Context) (verdict, error) {
				<-ctx.Done()
				return verdict{Says: idempotency.Final, IsRefusal: refusal}, nil
			})
			require.NoError(t, err)
			want := idempotency.Final
			if refusal {
				want = idempotency.Unknown
			}
			require.Equal(t, want, result.Outcome)
		})
	}
}
