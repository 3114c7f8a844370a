package txtest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file is about steps whose rows and record one commit makes durable.

// A stepShop has a handler that charges in a step, and answers what become of its first run says.
func stepShop(t *testing.T, first func(w http.ResponseWriter, err error), opts ...idempotency.Option) (*shop, *[]error) {
	t.Helper()
	s := newShop(t, nil, append([]idempotency.Option{idempotency.WithTransaction(false)}, opts...)...)
	var stepped []error
	s.runs.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
		value, err := guardtest.StepTx(r.Context(), s.store, "charge", func(_ context.Context, tx *guardtest.Tx) (int, error) {
			return 7, insert(tx)
		})
		stepped = append(stepped, err)
		switch {
		case run == 1:
			first(w, err)
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
		case value != 7:
			panic("the step has another value")
		default:
			w.WriteHeader(http.StatusCreated)
		}
	}
	return s, &stepped
}

// A step that must not be repeated is not, if the store loses the record under a run whose transaction then fails, or
// cannot be committed: the key is held.
func TestStepIsNotForgottenWithItsRecordAndItsTransaction(t *testing.T) {
	for name, end := range map[string]func(w http.ResponseWriter){
		"commits":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated) },
		"too large": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 3000)) },
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			mails := 0
			s := newShop(t, nil)
			s.runs.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
				_, _ = idempotency.Step(r.Context(), "mail", func(context.Context) (int, error) { mails++; return 1, nil }, idempotency.AtMostOnce())
				if run == 1 {
					s.store.Replace(idempotency.NewMemoryStore())
				}
				_ = s.store.InTx(r.Context(), insert)
				end(w)
			}
			for range 3 {
				_, _ = s.Try(t.Context(), guardtest.Call{Key: guardtest.HeldKey.Value})
				time.Sleep(time.Minute)
			}
			require.Equal(t, 1, mails)
			require.Contains(t, s.events.Kinds(), event.Held)
		})
	}
}

// However the commit of a step fails, its row is there once in the end, and a run knows what it
// can know.
func TestStepAndRowAreThereTogether(t *testing.T) {
	for name, c := range map[string]struct {
		op     string
		fault  guardtest.Fault
		want   error
		rows   int // after the first run
		result event.StepResult
	}{
		"commits":                     {rows: 1, result: event.StepRecorded},
		"cannot begin":                {op: "begin", fault: guardtest.Refuse, want: guardtest.ErrDown, result: event.StepNotDone},
		"conflicts":                   {op: "step-commit", fault: guardtest.FailWith(conflict), want: conflict, result: event.StepNotDone},
		"conflicts, and is run again": {op: "step-commit", fault: guardtest.FailWith(guardtest.ErrDeadlock), rows: 1, result: event.StepRecorded},
		"finds no owner":              {op: "step-commit", fault: guardtest.FailWith(store.ErrNotOwner), want: idempotency.ErrLeaseLost, result: event.StepNotDone},
		"is lost":                     {op: "step-commit", fault: guardtest.Refuse, want: idempotency.ErrCommitUnknown, result: event.StepNotRecorded},
		"the reply is lost":           {op: "step-commit", fault: guardtest.LoseReply, want: idempotency.ErrCommitUnknown, rows: 1, result: event.StepNotRecorded},
		"arrives after the run":       {op: "step-commit", fault: later, want: idempotency.ErrCommitUnknown, result: event.StepNotRecorded},
	} {
		for _, transaction := range []bool{false, true} {
			guardtest.Bubble(t, name+map[bool]string{true: ", with a transaction"}[transaction], func(t *testing.T) {
				fails := func(w http.ResponseWriter, _ error) { w.WriteHeader(http.StatusInternalServerError) }
				s, stepped := stepShop(t, fails, idempotency.WithTransaction(transaction))
				if c.fault != nil {
					s.store.On(c.op, guardtest.First(1, c.fault))
				}
				require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.ErrorIs(t, (*stepped)[0], c.want)
				require.Len(t, s.store.Rows(), c.rows)
				steps := slices.DeleteFunc(s.events.All(), func(e event.Event) bool { return e.Kind != event.Step })
				require.Equal(t, c.result, steps[0].Result)

				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
				time.Sleep(time.Hour)
				require.Len(t, s.store.Rows(), 1)
			})
		}
	}
}

// later loses a call, and executes it when another has come in between.
func later(_ context.Context, proceed func() error) error {
	time.AfterFunc(time.Minute, func() { _ = proceed() })
	return guardtest.ErrDown
}

// A step that was rolled back has done nothing, and the client may be told so.
func TestStepThatWasRolledBackIsNotBegun(t *testing.T) {
	s, _ := stepShop(t, func(w http.ResponseWriter, _ error) { w.WriteHeader(http.StatusTooManyRequests) }, idempotency.WithRecovery(idempotency.Hold))
	s.store.On("step-commit", guardtest.First(1, guardtest.FailWith(conflict)))
	require.Equal(t, http.StatusTooManyRequests, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Len(t, s.store.Rows(), 1)

	s, _ = stepShop(t, func(w http.ResponseWriter, _ error) { w.WriteHeader(http.StatusTooManyRequests) }, idempotency.WithRecovery(idempotency.Hold))
	s.store.On("step-commit", guardtest.First(1, guardtest.LoseReply))
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
}

// An error rolls the rows back. A permanent one is recorded all the same.
func TestErrorOfAStepRollsBack(t *testing.T) {
	for _, permanent := range []bool{false, true} {
		s := newShop(t, nil, idempotency.WithTransaction(false))
		tries := 0
		s.runs.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
			_, err := guardtest.StepTx(r.Context(), s.store, "charge", func(_ context.Context, tx *guardtest.Tx) (int, error) {
				if tries++; permanent {
					return 0, errors.Join(insert(tx), idempotency.Permanent(errDeclined))
				}
				return 0, errors.Join(insert(tx), errDeclined)
			})
			require.ErrorContains(t, err, errDeclined.Error())
			require.Equal(t, permanent, errors.Is(err, idempotency.ErrPermanent))
			w.WriteHeader(http.StatusInternalServerError)
		}
		s.Do(t, guardtest.Call{Key: "k"})
		s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, map[bool]int{false: 2, true: 1}[permanent], tries)
		require.Empty(t, s.store.Rows())
	}
}

// Wrong steps are refused as wrong joins and as wrong steps are. Outside of a run, a step is an
// ordinary transaction.
func TestWrongTransactedSteps(t *testing.T) {
	other := guardtest.NewTxStore()
	charge := func(_ context.Context, tx *guardtest.Tx) (int, error) { return 7, insert(tx) }
	s := newShop(t, nil, idempotency.WithTransaction(false))
	s.runs.Handler = func(_ http.ResponseWriter, r *http.Request, _ int64) {
		_, err := guardtest.StepTx(r.Context(), other, "a", charge)
		require.ErrorIs(t, err, idempotency.ErrOtherStore)
		_, err = guardtest.StepTx(r.Context(), s.store, "", charge)
		require.ErrorIs(t, err, idempotency.ErrStepMisuse)
		for _, want := range []error{nil, idempotency.ErrStepMisuse} {
			_, err = guardtest.StepTx(r.Context(), s.store, "a", charge)
			require.ErrorIs(t, err, want)
		}
		_, err = guardtest.StepTx(r.Context(), s.store, "b", func(_ context.Context, tx *guardtest.Tx) (func(), error) { return nil, insert(tx) })
		require.ErrorIs(t, err, idempotency.ErrStepMisuse, "a value that cannot be encoded is rolled back")
		_, err = guardtest.StepTx(r.Context(), s.store, "c", func(ctx context.Context, _ *guardtest.Tx) (int, error) {
			return guardtest.StepTx(ctx, s.store, "d", charge)
		})
		require.ErrorIs(t, err, idempotency.ErrStepMisuse)
	}
	s.Do(t, guardtest.Call{Key: "k"})
	require.Len(t, s.store.Rows(), 1)
	require.Empty(t, other.Rows())

	value, err := guardtest.StepTx(t.Context(), other, "a", charge)
	require.NoError(t, err)
	require.Equal(t, 7, value)
	require.Len(t, other.Rows(), 1)
}

// A transaction that keeps steps from being saved keeps them from having an effect, also once it is
// ready. What an earlier attempt has recorded is still found, and a step after a rollback runs.
func TestStepThatCannotBeSavedDoesNotRun(t *testing.T) {
	exclusive := errors.New("one writer")
	for name, opts := range map[string][]idempotency.TaskOption{"": nil, "at most once": {idempotency.AtMostOnce()}} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			s := newShop(t, nil)
			s.store.Exclusive = exclusive
			effects := 0
			step := func(ctx context.Context, name string) error {
				_, err := idempotency.Step(ctx, name, func(context.Context) (int, error) { effects++; return effects, nil }, opts...)
				return err
			}
			transacted := func(ctx context.Context) error {
				_, err := guardtest.StepTx(ctx, s.store, "d", func(context.Context, *guardtest.Tx) (int, error) { effects++; return 0, nil })
				return err
			}
			s.runs.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
				start := time.Now()
				require.NoError(t, step(r.Context(), "a"))
				err := s.store.InTx(r.Context(), func(tx *guardtest.Tx) error { return errors.Join(insert(tx), step(r.Context(), "b")) })
				require.ErrorIs(t, err, idempotency.ErrTransactionOpen)
				require.ErrorIs(t, err, exclusive)
				require.NoError(t, step(r.Context(), "e"), "the transaction is gone")
				require.NoError(t, s.store.InTx(r.Context(), func(tx *guardtest.Tx) error { return insert(tx) }))
				require.ErrorIs(t, step(r.Context(), "c"), idempotency.ErrTransactionOpen, "the transaction is ready")
				require.ErrorIs(t, transacted(r.Context()), idempotency.ErrTransactionOpen)
				require.Zero(t, time.Since(start), "at once")
				if run == 1 {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
			}
			s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Equal(t, 2, effects)
			require.Len(t, s.store.Rows(), 1)
		})
	}
}

// A step that an earlier attempt has recorded is found while a transaction is open.
func TestRecordedStepIsFoundInATransaction(t *testing.T) {
	s := newShop(t, nil)
	s.store.Exclusive = errors.New("one writer")
	s.runs.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
		step := func() (int, error) {
			return idempotency.Step(r.Context(), "a", func(context.Context) (int, error) { return int(run), nil })
		}
		if run == 1 {
			_, err := step()
			require.NoError(t, err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		require.NoError(t, s.store.InTx(r.Context(), func(tx *guardtest.Tx) error {
			value, err := step()
			require.Equal(t, 1, value)
			return errors.Join(err, insert(tx))
		}))
		w.WriteHeader(http.StatusCreated)
	}
	s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
}
