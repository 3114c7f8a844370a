package txtest

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
)

type handler = func(s *guardtest.TxStore, w http.ResponseWriter, r *http.Request)

// A handler has written in a transaction that the guard knows nothing of, and a crash would repeat that. The
// success without a transaction tells, once for each route.
func TestSuccessWithoutATransactionIsReported(t *testing.T) {
	t.Parallel()
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
		op, _ := idempotency.FromContext(r.Context())
		op.SetOutcome(o)
		w.WriteHeader(http.StatusCreated)
	}
}

// A function of Do has no route but the label of its guard.
func TestDoWithoutATransactionIsReported(t *testing.T) {
	t.Parallel()
	var events guardtest.Events
	guard := guardtest.NewGuard(t, guardtest.NewTxStore(), idempotency.WithTransaction(true), idempotency.WithObserver(events.Observe))
	for _, g := range []*idempotency.Guard{guard, guard, guard.With(idempotency.WithRoute("reports"))} {
		_, _, err := idempotency.Do(t.Context(), g, idempotency.Key{Scope: "s", Value: rand.Text()}, func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
	require.Equal(t, 2, events.Count(event.NotJoined))
}
