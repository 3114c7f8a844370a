package txtest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
)

// This file is about which runs may join which transaction.

// A store that cannot join is refused when the routes are set up.
func TestStoreThatCannotJoinIsRefused(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	for _, store := range []idempotency.Store{idempotency.NewMemoryStore(), idempotency.NewRedisStore(client)} {
		_, err := idempotency.New(store, guardtest.TenantScope, idempotency.WithTransaction(true))
		require.ErrorIs(t, err, idempotency.ErrCannotJoin)
		require.ErrorContains(t, err, "WithTransaction:")
		g := guardtest.NewGuard(t, store)
		err, _ = guardtest.PanicOf(func() { g.With(idempotency.WithTransaction(true)) }).(error)
		require.ErrorIs(t, err, idempotency.ErrCannotJoin)
		require.NotPanics(t, func() { g.With(idempotency.WithTransaction(true), idempotency.WithTransaction(false)) })
	}
}

// Each wrong join is refused by name, and begins nothing.
func TestWrongJoinsAreRefused(t *testing.T) {
	other := guardtest.NewTxStore()
	joins := func(s *guardtest.TxStore, r *http.Request) error {
		_, err := s.Begin(r.Context())
		return err
	}
	type row struct {
		opts []idempotency.Option
		run  func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) error
		want error
	}
	guardtest.Each(t, map[string]row{
		"no WithTransaction": {
			[]idempotency.Option{idempotency.WithTransaction(false)},
			func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error { return joins(s, r) },
			idempotency.ErrNoTransaction,
		},
		"another store": {
			nil, func(_ *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error { return joins(other, r) },
			idempotency.ErrOtherStore,
		},
		"a second transaction": {
			nil, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error {
				return errors.Join(joins(s, r), joins(s, r))
			}, idempotency.ErrJoined,
		},
		"a second transaction, the first is ready": {
			nil, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error {
				return errors.Join(s.InTx(r.Context(), insert), joins(s, r))
			}, idempotency.ErrJoined,
		},
		"flushed": {
			nil, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) error {
				return errors.Join(http.NewResponseController(w).Flush(), joins(s, r))
			}, idempotency.ErrAnswerSent,
		},
		"in a step, which would be recorded without its rows": {
			nil, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error {
				_, err := idempotency.Step(r.Context(), "order", func(ctx context.Context) (int, error) { return 1, s.InTx(ctx, insert) })
				return err
			}, idempotency.ErrStepMisuse,
		},
		"in a step, with the context of the request": {
			nil, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error {
				_, err := idempotency.Step(r.Context(), "order", func(context.Context) (int, error) { return 1, joins(s, r) })
				return err
			}, idempotency.ErrStepMisuse,
		},
		"in a run inside, with the context of the request": {
			nil, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) error {
				inner := guardtest.NewGuard(t, guardtest.NewTxStore())
				_, _, err := idempotency.Do(r.Context(), inner, idempotency.Key{Scope: "acme", Value: "k"}, func(context.Context) (int, error) { return 1, joins(s, r) })
				return err
			}, idempotency.ErrStepMisuse,
		},
		"a large answer": {
			nil, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) error {
				_, err := w.Write(make([]byte, 3000))
				return errors.Join(err, joins(s, r))
			}, idempotency.ErrAnswerSent,
		},
	}, func(t *testing.T, c row) {
		var got error
		s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) { got = c.run(s, w, r) }, c.opts...)
		s.Do(t, guardtest.Call{Key: "k"})
		require.ErrorIs(t, got, c.want)
		require.Equal(t, errors.Is(c.want, idempotency.ErrJoined), s.store.Count("begin") == 1)
		require.Zero(t, other.Count("begin"))
	})
}

// A goroutine that outlives its run joins nothing; and what it began while the run ended is
// rolled back.
func TestRunThatHasEndedJoinsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := make(chan error, 2)
		s := newShop(t, func(s *guardtest.TxStore, _ http.ResponseWriter, r *http.Request) {
			go func() {
				_, err := s.Begin(r.Context())
				late <- err
				_, err = s.Begin(r.Context())
				late <- err
			}()
			synctest.Wait()
		})
		s.store.On("begin", guardtest.Always(guardtest.Late(time.Second)))
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.ErrorIs(t, <-late, idempotency.ErrRunEnded)
		require.ErrorIs(t, <-late, idempotency.ErrRunEnded)
		require.Equal(t, 1, s.store.Count("begin"))
		require.Equal(t, 1, s.store.Count("rollback"))
	})
}

// A begin that has failed, or panicked, leaves room for another.
func TestFailedBeginMayBeTriedAgain(t *testing.T) {
	guardtest.Each(t, map[string]guardtest.Fault{
		"fails":  guardtest.Refuse,
		"panics": func(context.Context, func() error) error { panic(guardtest.Boom) },
	}, func(t *testing.T, fault guardtest.Fault) {
		s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			func() {
				defer func() { _ = recover() }()
				_, err := s.Begin(r.Context())
				require.ErrorIs(t, err, guardtest.ErrDown)
			}()
			charge(s, w, r)
		})
		s.store.On("begin", guardtest.First(1, fault))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Len(t, s.store.Rows(), 1)
	})
}

// Outside of a run, there is nothing to join: a request without a key, and one that runs
// unprotected.
func TestWithoutARunATransactionIsOrdinary(t *testing.T) {
	s := newShop(t, charge, idempotency.WithFailOpen(true))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{}).Status)
	require.Len(t, s.store.Rows(), 1)
	s.store.On("claim", guardtest.Always(guardtest.Refuse))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Len(t, s.store.Rows(), 2)
	require.Zero(t, s.store.Count("commit"))
}

// What the proofs of this package use as a store is one.
func TestTxStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) (idempotency.Store, func(time.Duration)) {
			s := guardtest.NewTxStore()
			for _, op := range append([]string{"step"}, guardtest.StoreOps...) {
				s.On(op, guardtest.Always(early)) // a wire would not ask
			}
			return s, time.Sleep
		},
		Transactions: func(_ testing.TB, s idempotency.Store) storetest.Transactions {
			return transactions{s.(*guardtest.TxStore)}
		},
		Bubble: synctest.Test,
	})
}

// early refuses a call whose caller is gone.
func early(ctx context.Context, proceed func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return proceed()
}

type transactions struct{ *guardtest.TxStore }

func (s transactions) Exclusive() bool { return false }

func (s transactions) Has(_ context.Context, row string) (bool, error) {
	return slices.Contains(s.Rows(), row), nil
}

func (s transactions) Begin(_ context.Context, key string, o store.Owner) (storetest.Tx, error) {
	return runTx{s.BeginFor(key, o)}, nil
}

func (s transactions) StepIn(
	ctx context.Context, r store.StepRecord, step func(context.Context, func(string) error) ([]byte, error),
) error {
	return s.TryStep(ctx, r, func(ctx context.Context, tx *guardtest.Tx) ([]byte, error) { return step(ctx, tx.Insert) })
}

type runTx struct{ *guardtest.Tx }

func (tx runTx) Insert(_ context.Context, row string) error { return tx.Tx.Insert(row) }
func (tx runTx) Ready(context.Context) error                { return tx.Commit() }

func (tx runTx) GiveUp(context.Context) error {
	tx.Tx.GiveUp()
	return nil
}

func (tx runTx) Spoil(context.Context) error {
	tx.Tx.Spoil()
	return nil
}

type handler = func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request)

// A handler has written in a transaction that the guard knows nothing of, and a crash would repeat that. The
// success without a transaction tells, once for each route.
func TestSuccessWithoutATransactionIsReported(t *testing.T) {
	answers := func(status int) handler {
		return func(_ *guardtest.TxStore, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	joins := func(ends func(*guardtest.Tx), again bool) handler {
		return func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
			tx, err := s.Begin(r.Context())
			if err != nil { // it has failed in the run before
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			ends(tx)
			if again {
				s.On("begin", guardtest.Always(guardtest.Refuse))
				_, err := s.Begin(r.Context())
				require.Error(t, err)
			}
			w.WriteHeader(http.StatusCreated)
		}
	}
	for name, c := range map[string]struct {
		handler handler
		opts    []idempotency.Option
		want    int
	}{
		"success":                     {answers(http.StatusCreated), nil, 1},
		"success, under Hold":         {answers(http.StatusOK), []idempotency.Option{idempotency.WithRecovery(idempotency.Hold)}, 1},
		"the program has said Final":  {says(idempotency.Final), nil, 1},
		"the program is not sure":     {says(idempotency.Unknown), nil, 0},
		"refused":                     {answers(http.StatusNotFound), nil, 0},
		"failed":                      {answers(http.StatusInternalServerError), nil, 0},
		"without the option":          {answers(http.StatusCreated), []idempotency.Option{idempotency.WithTransaction(false)}, 0},
		"joined":                      {charge, nil, 0},
		"given up":                    {joins((*guardtest.Tx).GiveUp, false), nil, 0},
		"given up, and none after it": {joins((*guardtest.Tx).GiveUp, true), nil, 0},
	} {
		s := newShop(t, nil, c.opts...)
		s.runs.Handler = func(w http.ResponseWriter, r *http.Request, _ int64) { c.handler(s.store, w, r) }
		for range 2 {
			s.Do(t, guardtest.Call{Header: http.Header{"Idempotency-Key": {rand.Text()}}})
		}
		require.Equal(t, c.want, s.events.Count(event.NotJoined), name)
		require.Zero(t, s.events.Count(event.Held), name)
		if c.want > 0 {
			require.ErrorContains(t, s.events.Errors()[0], "InSQLTx", name)
		}
	}
}

func says(o idempotency.Outcome) handler {
	return func(_ *guardtest.TxStore, w http.ResponseWriter, r *http.Request) {
		guardtest.Op(r.Context()).SetOutcome(o)
		w.WriteHeader(http.StatusCreated)
	}
}

// A function of Do has no route but the label of its guard.
func TestDoWithoutATransactionIsReported(t *testing.T) {
	var events guardtest.Events
	guard := guardtest.NewGuard(t, guardtest.NewTxStore(), idempotency.WithTransaction(true), idempotency.WithObserver(events.Observe))
	for _, g := range []*idempotency.Guard{guard, guard, guard.With(idempotency.WithRoute("reports"))} {
		_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: rand.Text()}, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	require.Equal(t, 2, events.Count(event.NotJoined))
}
