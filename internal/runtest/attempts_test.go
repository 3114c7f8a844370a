package runtest_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Tests of HoldAfter.

func failing(status *int) *guardtest.Counter {
	return &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(*status) }}
}

// A run that fails each time stops to be repeated, until somebody has looked.
func TestLastAttemptIsHeld(t *testing.T) {
	stores := map[string]func() (idempotency.Store, []idempotency.Option){
		"plain": func() (idempotency.Store, []idempotency.Option) { return idempotency.NewMemoryStore(), nil },
		"transaction": func() (idempotency.Store, []idempotency.Option) {
			return guardtest.NewTxStore(), []idempotency.Option{idempotency.WithTransaction(true)}
		},
	}
	for name, newStore := range stores {
		t.Run(name, func(t *testing.T) {
			status := http.StatusInternalServerError
			h, events := failing(&status), &guardtest.Events{}
			store, opts := newStore()
			guard := guardtest.NewGuard(t, store, append(opts, idempotency.WithRecovery(idempotency.HoldAfter(3)), idempotency.WithObserver(events.Observe))...)
			s := guardtest.ServeRecorder(t, guard.Handler(h))
			call := guardtest.Call{Key: "k"}
			for range 2 {
				s.Do(t, call)
				require.Zero(t, events.Count(event.Held))
			}
			s.Do(t, call)
			require.Equal(t, 1, events.Count(event.Held))
			guardtest.RequireProblem(t, s.Do(t, call), http.StatusConflict, problem.OutcomeUnknown)
			require.EqualValues(t, 3, h.Runs.Load())

			if name == "transaction" {
				return // this store cannot be inspected
			}
			// Resolved as not executed, it has another attempt.
			key := idempotency.Key{Scope: "acme", Value: "k"}
			for runs := range 2 {
				info := guardtest.Lookup(t, guard, key)
				require.NoError(t, guard.Resolve(t.Context(), key, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
				status = []int{http.StatusInternalServerError, http.StatusCreated}[runs]
				s.Do(t, call)
				require.EqualValues(t, 4+runs, h.Runs.Load())
			}
			require.True(t, s.Do(t, call).Replayed())
		})
	}
}

// A request that kills its process each time does not kill one after another. While the store
// cannot be told to hold the key, nothing runs either.
func TestRequestThatKillsItsProcessIsHeld(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := idempotency.NewMemoryStore()
			gone := make(chan struct{})
			defer close(gone)
			h := &guardtest.Counter{Handler: func(_ http.ResponseWriter, _ *http.Request, run int64) {
				if run <= 2 {
					<-gone
				}
			}}
			call := guardtest.Call{Key: "k"}
			start := func() *guardtest.Process {
				return guardtest.NewProcess(t, store, h, idempotency.WithRecovery(idempotency.HoldAfter(2)))
			}
			for range 2 {
				p := start()
				go p.Attempt(t, call)
				synctest.Wait()
				p.Store.Fail(guardtest.Refuse) // its process is dead, as far as the store can tell
				time.Sleep(2 * guardtest.LeaseTime)
			}
			require.EqualValues(t, 2, h.Runs.Load())
			p := start()
			if away {
				p.Store.On("hold", guardtest.Always(guardtest.Refuse))
				guardtest.RequireProblem(t, p.Do(t, call), http.StatusServiceUnavailable, problem.StoreUnavailable)
				p.Store.Heal()
				time.Sleep(time.Minute)
			}
			guardtest.RequireProblem(t, p.Do(t, call), http.StatusConflict, problem.OutcomeUnknown)
			time.Sleep(2 * guardtest.LeaseTime)
			guardtest.RequireProblem(t, p.Do(t, call), http.StatusConflict, problem.OutcomeUnknown)
			require.EqualValues(t, 2, h.Runs.Load())
			require.Equal(t, 1, p.Events.Count(event.Held))
			require.Zero(t, p.Events.Count(event.Takeover), "nobody takes over what is held instead")
		})
	}
}

// A message is a request too.
func TestLastAttemptOfDo(t *testing.T) {
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.HoldAfter(2)))
	down := errors.New("down")
	for _, want := range []error{down, down, idempotency.ErrHeld, idempotency.ErrHeld} {
		_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "queue", Value: "m"}, func(context.Context) (int, error) { return 0, down })
		require.ErrorIs(t, err, want)
	}
}
