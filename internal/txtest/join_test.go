package txtest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// This file is about which runs may join which transaction.

// A store that cannot join is refused when the routes are set up.
func TestStoreThatCannotJoinIsRefused(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	other := guardtest.NewTxStore()
	joins := func(s *guardtest.TxStore, r *http.Request) error {
		_, err := s.Begin(r.Context())
		return err
	}
	for name, c := range map[string]struct {
		opts []idempotency.Option
		run  func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) error
		want error
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got error
			s := newShop(t, func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request) { got = c.run(s, w, r) }, c.opts...)
			s.Do(t, guardtest.Call{Key: "k"})
			require.ErrorIs(t, got, c.want)
			require.Equal(t, errors.Is(c.want, idempotency.ErrJoined), s.store.Count("begin") == 1)
			require.Zero(t, other.Count("begin"))
		})
	}
}

// A goroutine that outlives its run joins nothing; and what it began while the run ended is
// rolled back.
func TestRunThatHasEndedJoinsNothing(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	for name, fault := range map[string]guardtest.Fault{
		"fails":  guardtest.Refuse,
		"panics": func(context.Context, func() error) error { panic(guardtest.Boom) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
}

// Outside of a run, there is nothing to join: a request without a key, and one that runs
// unprotected.
func TestWithoutARunATransactionIsOrdinary(t *testing.T) {
	t.Parallel()
	s := newShop(t, charge, idempotency.WithFailOpen(true))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{}).Status)
	require.Len(t, s.store.Rows(), 1)
	s.store.On("claim", guardtest.Always(guardtest.Refuse))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Len(t, s.store.Rows(), 2)
	require.Zero(t, s.store.Count("commit"))
}
