package recordtest

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
	"example.com/idempotency/store"
)

// What a record tells of the end of its runs, and of what their keys were derived from.

// A run tells in its record why it has left its key held, and when. A decision, and the runs after it, change nothing of that.
func TestRecordTellsWhyAndWhenItBecameHeld(t *testing.T) {
	holds := idempotency.WithRecovery(idempotency.Hold)
	answers := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	for name, c := range map[string]struct {
		run    http.HandlerFunc
		opt    idempotency.Option
		cause  event.Cause
		status int
	}{
		"502":        {answers(http.StatusBadGateway), holds, event.CauseUnknown, http.StatusBadGateway},
		"408":        {answers(http.StatusRequestTimeout), holds, event.CauseUnknown, http.StatusRequestTimeout},
		"panic":      {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, holds, event.CausePanic, 0},
		"last":       {answers(http.StatusBadGateway), idempotency.WithRecovery(idempotency.HoldAfter(1)), event.CauseAttempts, http.StatusBadGateway},
		"not sealed": {answers(http.StatusCreated), idempotency.WithSealer(guardtest.FailingSealer{Sealer: guardtest.NewSealer(t, 1)}), event.CauseNotRecorded, http.StatusCreated},
		"said": {func(w http.ResponseWriter, r *http.Request) {
			guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
			w.WriteHeader(http.StatusAccepted)
		}, holds, event.CauseSaid, http.StatusAccepted},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), c.opt)
			s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				if guardtest.Op(r.Context()).Attempt() == 1 {
					c.run(w, r)
				}
			})))
			began := time.Now()
			_ = guardtest.PanicOf(func() { s.Do(t, guardtest.Call{Key: "k"}) })
			time.Sleep(time.Minute)
			info := guardtest.Lookup(t, g, guardtest.HeldKey)
			require.Equal(t, store.Held, info.State)
			require.Equal(t, c.cause, info.Cause)
			require.Equal(t, c.status, info.Answered)
			require.True(t, began.Add(time.Second).Equal(info.Held), "%v", info.Held)
			run := info.Runs[0]

			require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.Resume}))
			_ = guardtest.PanicOf(func() { s.Do(t, guardtest.Call{Key: "k"}) })
			info = guardtest.Lookup(t, g, guardtest.HeldKey)
			require.Len(t, info.Runs, 2)
			require.Equal(t, run, info.Runs[0])
			require.Equal(t, event.RunInfo{Attempt: 1, Started: began.Truncate(time.Millisecond).Local(), Cause: c.cause, Held: began.Add(time.Second).Truncate(time.Millisecond).Local(), Status: c.status}, run)
			if info.State == store.Completed {
				require.Zero(t, info.Cause)
				require.Zero(t, info.Runs[1].Cause)
			}
		})
	}
}

// A process that dies, hangs or loses the store says nothing. That is what the record tells, and what a process reports that
// finds it. If it comes back, it says why.
func TestRecordTellsThatItsRunHasNotSaidWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := idempotency.NewMemoryStore()
		holds := idempotency.WithRecovery(idempotency.Hold)
		leave := make(chan struct{})
		gone := guardtest.NewProcess(t, st, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-leave
			w.WriteHeader(http.StatusBadGateway)
		}), holds)
		done := gone.Start(t, guardtest.Call{Key: "k"})
		gone.Store.Fail(guardtest.Refuse)
		time.Sleep(10 * time.Minute)

		other := guardtest.NewProcess(t, st, guardtest.FailsFirst(), holds)
		require.Equal(t, http.StatusConflict, other.Do(t, guardtest.Call{Key: "k"}).Status)
		held := (&desk{Events: other.Events}).only(event.Held)
		require.Len(t, held, 1)
		require.Equal(t, event.CauseLapsed, held[0].Cause)
		g := guardtest.NewGuard(t, st, holds)
		info := guardtest.Lookup(t, g, guardtest.HeldKey)
		require.Equal(t, event.CauseLapsed, info.Cause)
		require.Equal(t, event.CauseLapsed, info.Runs[0].Cause)
		require.Zero(t, info.Held)
		require.Zero(t, info.Answered)

		gone.Store.Heal()
		close(leave)
		<-done
		synctest.Wait()
		info = guardtest.Lookup(t, g, guardtest.HeldKey)
		require.Equal(t, event.CauseUnknown, info.Cause)
		require.Equal(t, http.StatusBadGateway, info.Answered)
		require.NotZero(t, info.Held)
	})
}

// An earlyStore has the notes of an earlier version, which tell neither why nor what keys are derived from.
type earlyStore struct{ *idempotency.MemoryStore }

func (s earlyStore) Claim(ctx context.Context, key string, c store.Claim) (store.Record, error) {
	c.Note = append([]byte{1}, c.Note[1:17]...)
	return s.MemoryStore.Claim(ctx, key, c)
}

func (s earlyStore) Hold(ctx context.Context, key string, o store.Owner, _ []byte) error {
	return s.MemoryStore.Hold(ctx, key, o, nil)
}

// Where the route derives other keys than the run had, nobody asks under them, and nobody repeats under them what the run has
// done. A record of an earlier version does not tell, and is dealt with as ever.
func TestNobodyAsksUnderOtherKeysThanTheRunHad(t *testing.T) {
	none, secret := idempotency.WithDerivation("", nil), idempotency.WithDerivation("eu", []byte("secret"))
	for name, c := range map[string]struct {
		before, now idempotency.Option
		early, told bool
	}{
		"nothing":            {none, none, false, true},
		"the same":           {secret, idempotency.WithDerivation("eu", []byte("secret")), false, true},
		"added":              {none, secret, false, false},
		"taken away":         {secret, none, false, false},
		"another namespace":  {secret, idempotency.WithDerivation("us", []byte("secret")), false, false},
		"another secret":     {secret, idempotency.WithDerivation("eu", []byte("secrets")), false, false},
		"of earlier version": {secret, idempotency.WithDerivation("us", nil), true, true},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			mem := idempotency.NewMemoryStore()
			var st idempotency.Store = mem
			if c.early {
				st = earlyStore{mem}
			}
			newDesk(t, st, c.before).route.Do(t, guardtest.Call{Key: "k"})
			r := &resolverLog{}
			d := newDesk(t, mem, c.now, answering(r, idempotency.Unknown))
			require.Equal(t, http.StatusConflict, d.route.Do(t, guardtest.Call{Key: "k"}).Status)
			d.reconcile(t)
			refused := d.only(event.Unresolved)
			if c.told {
				require.Equal(t, []string{"k", "k"}, r.keys())
				require.NotEmpty(t, r.asked[0].DeriveKey("charge"))
				require.Empty(t, refused)
			} else {
				require.Empty(t, r.keys())
				require.Len(t, refused, 2)
				for _, e := range refused {
					require.ErrorIs(t, e.Err, idempotency.ErrOtherKeys)
				}
			}
			route := d.With(idempotency.WithRoute(payouts), idempotency.WithKeptKeys(true), c.now)
			info := guardtest.Lookup(t, route, guardtest.HeldKey)
			require.Equal(t, c.told, info.ID != "")
			require.Equal(t, c.told, info.DeriveKey("charge") != "")
			err := d.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.Resume})
			if c.told {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, idempotency.ErrOtherKeys)
			require.Equal(t, info.Seen(), guardtest.Seen(t, route), "nothing is changed")
			require.NoError(t, d.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
		})
	}
}

// A guard without a label is the route of records without one.
func TestResumeOnARouteWithoutALabelNeedsItsKeys(t *testing.T) {
	secret := idempotency.WithDerivation("eu", nil)
	for name, c := range map[string]struct {
		before, now, label idempotency.Option
		passes             bool
	}{
		"the same":        {secret, secret, nil, true},
		"added":           {nil, secret, nil, false},
		"taken away":      {secret, nil, nil, false},
		"another program": {secret, nil, idempotency.WithRoute("a tool that knows no route"), true},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			st := idempotency.NewMemoryStore()
			guard := func(opts ...idempotency.Option) *idempotency.Guard {
				return guardtest.NewGuard(t, st, append(opts, idempotency.WithRecovery(idempotency.Hold))...)
			}
			failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
			guardtest.ServeRecorder(t, guard(c.before).Handler(failing)).Do(t, guardtest.Call{Key: "k"})
			now := guard(c.now, c.label)
			err := now.Resolve(t.Context(), guardtest.HeldKey, guardtest.Seen(t, now), idempotency.Resolution{Outcome: idempotency.Resume})
			require.Equal(t, !c.passes, errors.Is(err, idempotency.ErrOtherKeys), "%v", err)
		})
	}
}

// A later attempt under other keys does not tell what an earlier one has done under its own.
func TestEarlierAttemptUnderOtherKeys(t *testing.T) {
	st := idempotency.NewMemoryStore()
	failing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	guard := func(namespace string, opts ...idempotency.Option) *idempotency.Guard {
		return guardtest.NewGuard(t, st, append(opts, idempotency.WithDerivation(namespace, nil), idempotency.WithRecovery(idempotency.HoldAfter(2)))...)
	}
	guardtest.ServeRecorder(t, guard("eu").Handler(failing)).Do(t, guardtest.Call{Key: "k"})
	now := guard("us")
	guardtest.ServeRecorder(t, now.Handler(failing)).Do(t, guardtest.Call{Key: "k"})
	info := guardtest.Lookup(t, now, guardtest.HeldKey)
	require.Equal(t, []any{2, "", ""}, []any{info.Attempt, info.ID, info.DeriveKey("charge")})
	err := now.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Resolution{Outcome: idempotency.Resume})
	require.ErrorIs(t, err, idempotency.ErrOtherKeys)
}
