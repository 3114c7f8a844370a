package recordtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// What an operator does who has the name of a record, and neither the key nor the scope.

// A payout is served on a shared store by a process that has its key. An operator has another
// process: the same store and sealer, and the name of the record from an event.
type payout struct {
	*guardtest.Server
	name            idempotency.Key
	info            idempotency.RecordInfo // what the operator has found under the name
	route, operator *idempotency.Guard
	events          *guardtest.Events
	log             *guardtest.LockedBuffer
	booked, wired   atomic.Int64 // how often each step was begun
}

// newPayout leaves a payout held whose transfer may have been wired.
func newPayout(t *testing.T, st idempotency.Store, opts ...idempotency.Option) *payout {
	t.Helper()
	p := &payout{events: &guardtest.Events{}, log: &guardtest.LockedBuffer{}}
	process := &guardtest.Events{}
	opts = append(opts, idempotency.WithRecovery(idempotency.Hold))
	p.route = guardtest.NewGuard(t, st, append(opts, idempotency.WithObserver(process.Observe), idempotency.WithRoute("POST /payouts"))...)
	p.Server = guardtest.ServeRecorder(t, p.route.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.Step(r.Context(), "book", func(context.Context) (int64, error) { return p.booked.Add(1), nil })
		if err == nil {
			_, err = idempotency.Step(r.Context(), "wire", func(context.Context) (int64, error) {
				if p.wired.Add(1) == 1 {
					return 0, errors.New("no answer from the bank")
				}
				return 2, nil
			}, idempotency.AtMostOnce())
		}
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	p.operator = guardtest.NewGuard(t, st, append(opts, idempotency.WithObserver(p.events.Observe),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(p.log, nil))))...)
	require.Equal(t, http.StatusBadGateway, p.Do(t, guardtest.Call{Key: "k"}).Status)
	guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
	for _, e := range process.All() {
		if e.Kind == event.Held {
			p.name = idempotency.Key{Record: e.Record}
		}
	}
	require.NotEmpty(t, p.name.Record)
	p.info = guardtest.Lookup(t, p.operator, p.name)
	return p
}

// onEachStore runs a test on each store, with and without a sealer.
func onEachStore(t *testing.T, f func(t *testing.T, st idempotency.Store, opts ...idempotency.Option)) {
	t.Helper()
	for storeName, open := range guardtest.SharedStores {
		for sealing, sealer := range map[string]idempotency.Sealer{"plain": nil, "sealed": guardtest.NewSealer(t, 1)} {
			t.Run(storeName+" "+sealing, func(t *testing.T) {
				f(t, open(t), idempotency.WithSealer(sealer))
			})
		}
	}
}

var byAda = idempotency.Decision{Actor: "ada", Reason: "the bank's statement"}

func TestLookupByRecordName(t *testing.T) {
	onEachStore(t, func(t *testing.T, st idempotency.Store, opts ...idempotency.Option) {
		p := newPayout(t, st, opts...)
		byKey := guardtest.Lookup(t, p.route, guardtest.HeldKey)
		byName := p.info
		require.Equal(t, p.name, byName.Key)
		require.Equal(t, p.name.Record, byKey.Record)
		require.Equal(t, byKey.Record, byName.Record)
		require.Equal(t, store.Held, byName.State)
		require.Equal(t, 1, byName.Attempt)
		require.Equal(t, "POST /payouts", byName.Route)
		require.Equal(t, []string{"book"}, byName.Steps)
		require.Equal(t, []string{"wire"}, byName.InDoubt)
		require.Equal(t, byKey.Runs, byName.Runs)
		require.Equal(t, byKey.Seen(), byName.Seen())

		require.Len(t, byKey.DeriveKey("wire"), 32)
		require.Empty(t, byName.ID, "nobody knows the key")
		require.Empty(t, byName.DeriveKey("wire"), "it would be the key of something else")
	})
}

func TestResolveByRecordNameWithAnAnswer(t *testing.T) {
	onEachStore(t, func(t *testing.T, st idempotency.Store, opts ...idempotency.Option) {
		p := newPayout(t, st, opts...)
		for range 3 { // repeating it is success, also under a sealer
			require.NoError(t, p.operator.Resolve(t.Context(), p.name, p.info.Seen(), idempotency.Resolution{
				Outcome: idempotency.Final, Status: http.StatusCreated, Body: []byte("paid by hand"), Decision: byAda,
			}))
		}
		got := p.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, http.StatusCreated, got.Status)
		require.Equal(t, "paid by hand", got.Body)
		require.EqualValues(t, 1, p.wired.Load())
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k", Body: "other"}), http.StatusConflict, problem.KeyReused)
		p.requireDecision(t, 0, event.Resolved)
	})
}

func TestResolveByRecordNameToGoOn(t *testing.T) {
	onEachStore(t, func(t *testing.T, st idempotency.Store, opts ...idempotency.Option) {
		p := newPayout(t, st, opts...)
		undone := idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"wire"}, Decision: byAda}
		require.ErrorIs(t, p.operator.Resolve(t.Context(), p.name, store.Seen{}, undone), idempotency.ErrChanged)
		require.NoError(t, p.operator.Resolve(t.Context(), p.name, p.info.Seen(), undone))
		require.Equal(t, http.StatusCreated, p.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 1, p.booked.Load())
		require.EqualValues(t, 2, p.wired.Load())
		require.ErrorIs(t, p.operator.Resolve(t.Context(), p.name, p.info.Seen(), undone), idempotency.ErrChanged)
		p.requireDecision(t, 0, event.Resolved)
	})
}

func TestForgetByRecordName(t *testing.T) {
	onEachStore(t, func(t *testing.T, st idempotency.Store, opts ...idempotency.Option) {
		p := newPayout(t, st, opts...)
		require.ErrorIs(t, p.operator.Forget(t.Context(), p.name, store.Seen{}, byAda), idempotency.ErrChanged)
		require.NoError(t, p.operator.Forget(t.Context(), p.name, p.info.Seen(), byAda))
		_, err := p.operator.Lookup(t.Context(), p.name)
		require.ErrorIs(t, err, idempotency.ErrNotFound)
		require.Equal(t, http.StatusCreated, p.Do(t, guardtest.Call{Key: "k"}).Status)
		p.requireDecision(t, 0, event.Forgotten)
	})
}

// requireDecision checks what is reported of a decision by the record's name.
func (p *payout) requireDecision(t *testing.T, i int, kind event.Kind) {
	t.Helper()
	e := p.events.All()[i]
	require.Equal(t, kind, e.Kind)
	require.Equal(t, p.name.Record, e.Record)
	require.Equal(t, "POST /payouts", e.Route)
	require.Equal(t, 1, e.Attempt)
	require.Equal(t, byAda.Actor, e.Actor)
	require.Equal(t, byAda.Reason, e.Reason)
	require.Empty(t, e.Scope)
	require.Empty(t, e.OperationID)
	for _, part := range []string{"record=" + p.name.Record, "actor=ada", `reason="the bank's statement"`} {
		require.Contains(t, p.log.String(), part)
	}
}

// What is not the name of a record reaches no store, which could take it for another key of its own.
func TestInvalidRecordNames(t *testing.T) {
	st := newListed()
	guard := guardtest.NewGuard(t, st)
	name := "pabwdD-b40jYvm3_gRmUvjEiF06BVBZkFR9utCWVMVo"
	keys := []idempotency.Key{{}, {Record: name, Value: "k"}, {Record: name, Scope: "acme"}}
	for _, invalid := range []string{
		"k", name[:42], name + "A", name + "=", name[:42] + "p", name[:20] + "+" + name[21:], name[:20] + "\n" + name[21:],
		name + "\n", " " + name[:42], strings.Repeat("*", 43), strings.Repeat("A", 1<<20), "idempotency:" + name,
	} {
		keys = append(keys, idempotency.Key{Record: invalid})
	}
	for _, k := range keys {
		_, err := guard.Lookup(t.Context(), k)
		require.Error(t, err, "%.60q", k)
		require.Error(t, guard.Resolve(t.Context(), k, guardtest.HeldBy(store.Owner{1}, 1), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
		require.Error(t, guard.Forget(t.Context(), k, guardtest.HeldBy(store.Owner{1}, 1), idempotency.Decision{}))
		if k.Record != "" && k.Scope == "" && k.Value == "" {
			require.ErrorContains(t, err, "is not the name of a record")
			require.Less(t, len(err.Error()), 300)
		}
	}
	require.Zero(t, st.Total())
	_, err := guard.Lookup(t.Context(), idempotency.Key{Record: name})
	require.ErrorIs(t, err, idempotency.ErrNotFound)
}

// The name of a record is enough to look at it, and not to run under it.
func TestDoNeedsAKeyAndNotARecordName(t *testing.T) {
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "jobs", Value: "1", Record: "pabwdD-b40jYvm3_gRmUvjEiF06BVBZkFR9utCWVMVo"},
		func(context.Context) (int, error) { t.Error("it ran"); return 0, nil })
	require.ErrorContains(t, err, "Record")
}

// heldJob leaves a job of Do held, and returns its guard, a function that runs it again, and the name of its record.
func heldJob[T any](t *testing.T, value T) (*idempotency.Guard, func() (T, idempotency.Result, error), idempotency.Key) {
	t.Helper()
	events := &guardtest.Events{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
	fails := io.ErrUnexpectedEOF
	run := func() (T, idempotency.Result, error) {
		return idempotency.Do(t.Context(), guard, jobKey, func(context.Context) (T, error) { return value, fails })
	}
	_, _, err := run()
	require.ErrorIs(t, err, fails)
	fails = nil
	_, _, err = run()
	require.ErrorIs(t, err, idempotency.ErrHeld)
	return guard, run, idempotency.Key{Record: events.All()[0].Record}
}

// A key of Do is resolved with a value, also by the name of its record, and is not mixed up with one of a request.
func TestResolveGivesDoItsValue(t *testing.T) {
	for _, byName := range []bool{false, true} {
		guard, run, key := heldJob(t, "paid")
		if !byName {
			key = jobKey
		}
		info := guardtest.Lookup(t, guard, key)
		require.NoError(t, guard.Resolve(t.Context(), key, info.Seen(), idempotency.Resolution{
			Outcome: idempotency.Final, Body: []byte(`"paid by hand"`),
		}))
		got, result, err := run()
		require.NoError(t, err)
		require.Equal(t, "paid by hand", got)
		require.Equal(t, idempotency.Result{Replayed: true, Attempt: 1, Outcome: idempotency.Final}, result)
	}
}

// A message has no value, so who settles it has no body to give. One whose codec needs a body gets what it
// makes of none.
func TestResolveGivesDoNoValue(t *testing.T) {
	guard, run, _ := heldJob[*struct{}](t, nil)
	info := guardtest.Lookup(t, guard, jobKey)
	require.NoError(t, guard.Resolve(t.Context(), jobKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.Final}))
	got, result, err := run()
	require.NoError(t, err)
	require.Nil(t, got)
	require.True(t, result.Replayed)
}
