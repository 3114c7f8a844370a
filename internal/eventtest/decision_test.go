package eventtest

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"github.com/stretchr/testify/require"
)

// A decision by hand is in the log and in an event, with who made it and why.
func TestDecisionsAreReported(t *testing.T) {
	t.Parallel()
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		var log guardtest.LockedBuffer
		fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		p := newTraced(t, st, fails, idempotency.WithRecovery(idempotency.Hold), idempotency.WithRoute("POST /charges"))
		console := &guardtest.Events{}
		guard := guardtest.NewGuard(t, st, idempotency.WithObserver(console.Observe),
			idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		by := idempotency.Decision{Actor: "ada", Reason: "the provider knows no charge (ticket 7)"}
		seen := func(value string) (idempotency.Key, idempotency.RecordInfo) {
			p.Do(t, inSpan("1", guardtest.Call{Key: value}))
			k := idempotency.Key{Scope: "acme", Value: value}
			info, err := guard.Lookup(t.Context(), k)
			require.NoError(t, err)
			require.Equal(t, store.Held, info.State)
			return k, info
		}
		a, info := seen("a")
		stale := store.Seen{Owner: info.Seen().Owner, Attempt: 7, State: store.Held}
		require.ErrorIs(t, guard.Resolve(t.Context(), a, stale, idempotency.Resolution{Outcome: idempotency.NotExecuted, Decision: by}), idempotency.ErrChanged)
		require.ErrorIs(t, guard.Forget(t.Context(), a, stale, by), idempotency.ErrChanged)
		require.Empty(t, console.All(), "nothing was decided")
		require.NoError(t, guard.Resolve(t.Context(), a, info.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted, Decision: by}))
		b, info := seen("b")
		require.NoError(t, guard.Forget(t.Context(), b, info.Seen(), by))

		events := console.All()
		require.Len(t, events, 2)
		for _, e := range events {
			require.Equal(t, "acme", e.Scope)
			require.Len(t, e.Record, 43)
			require.Equal(t, 1, e.Attempt)
			require.Equal(t, by.Actor, e.Actor)
			require.Equal(t, by.Reason, e.Reason)
			require.False(t, e.Kind.Incident())
			require.Equal(t, "POST /charges", e.Route)
			require.Equal(t, span(1), e.Trace)
			require.Len(t, e.OperationID, 32)
		}
		recorded, err := guard.Lookup(t.Context(), a)
		require.NoError(t, err)
		require.Len(t, recorded.Decisions, 1)
		made := recorded.Decisions[0]
		require.WithinDuration(t, time.Now(), made.Made, time.Minute)
		made.Made = time.Time{}
		require.Equal(t, event.DecisionInfo{
			ID: events[0].Decision, Outcome: idempotency.NotExecuted, From: "held", Attempt: 1, Actor: by.Actor, Reason: by.Reason,
		}, made)
		require.Len(t, events[0].Decision, 32)
		require.Len(t, events[1].Decision, 32)
		require.NotEqual(t, events[0].Decision, events[1].Decision)
		require.Contains(t, log.String(), " decision="+events[0].Decision+" ")
		require.Contains(t, log.String(), " decision="+events[1].Decision+" ")
		require.Equal(t, event.Resolved, events[0].Kind)
		require.Equal(t, idempotency.NotExecuted, events[0].Outcome)
		require.Equal(t, event.Forgotten, events[1].Kind)
		require.True(t, events[1].Held)
		require.Equal(t, 2, strings.Count(log.String(), `actor=ada reason="the provider knows no charge (ticket 7)"`), log.String())
	})
}

// A resolver decides as a person does, and says so.
func TestResolversDecisionIsReported(t *testing.T) {
	t.Parallel()
	for actor, want := range map[string]string{"": "resolver", "nightly job": "nightly job"} {
		fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		events := &guardtest.Events{}
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe),
			idempotency.WithRecovery(idempotency.Hold),
			idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				by := idempotency.Decision{Actor: actor, Reason: "asked"}
				return idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusCreated, Decision: by}, nil
			}))
		s := guardtest.ServeRecorder(t, guard.Handler(fails))
		s.Do(t, guardtest.Call{Key: "k"})
		require.Zero(t, events.Count(event.Resolved))
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		e := only(events, event.Resolved)[0]
		require.Equal(t, idempotency.Final, e.Outcome)
		require.Equal(t, want, e.Actor)
		require.Equal(t, "asked", e.Reason)
		info, err := guard.Lookup(t.Context(), idempotency.Key{Record: e.Record})
		require.NoError(t, err)
		require.Len(t, info.Decisions, 1)
		require.Equal(t, e.Decision, info.Decisions[0].ID)
		require.Equal(t, want, info.Decisions[0].Actor)
		require.Equal(t, idempotency.Final, info.Decisions[0].Outcome)
	}
}

// A decision that is sent again is the same decision, and that of somebody else is refused: the record names the one
// who has decided.
func TestADecisionIsMadeOnce(t *testing.T) {
	t.Parallel()
	for name, open := range guardtest.SharedStores {
		for outcome, res := range map[string]idempotency.Resolution{
			"final": {Outcome: idempotency.Final, Status: http.StatusCreated}, "resume": {Outcome: idempotency.Resume}, "not-executed": {Outcome: idempotency.NotExecuted},
		} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				t.Parallel()
				events := &guardtest.Events{}
				guard := guardtest.NewGuard(t, open(t), idempotency.WithObserver(events.Observe), idempotency.WithRecovery(idempotency.Hold))
				fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
				s := guardtest.ServeRecorder(t, guard.Handler(fails))
				s.Do(t, guardtest.Call{Key: "k"})
				k := idempotency.Key{Record: only(events, event.Held)[0].Record}
				seen, err := guard.Lookup(t.Context(), k)
				require.NoError(t, err)
				require.Empty(t, seen.Decisions)

				decide := func(by idempotency.Decision) error {
					res := res
					res.Decision = by
					return guard.Resolve(t.Context(), k, seen.Seen(), res)
				}
				ada := idempotency.Decision{Actor: "ada", Reason: strings.Repeat("the provider knows it; ", 100)}
				require.NoError(t, decide(ada))
				require.NoError(t, decide(ada))
				for _, by := range []idempotency.Decision{{}, {Actor: "ada", Reason: "another"}, {Actor: "bea", Reason: ada.Reason}} {
					require.ErrorIs(t, decide(by), idempotency.ErrChanged)
				}
				info, err := guard.Lookup(t.Context(), k)
				require.NoError(t, err)
				require.Len(t, info.Decisions, 1)
				require.Equal(t, "ada", info.Decisions[0].Actor)
				begin, cut := strings.CutSuffix(info.Decisions[0].Reason, "…")
				require.True(t, cut && strings.HasPrefix(ada.Reason, begin))
				told := only(events, event.Resolved)
				require.Len(t, told, 2)
				for _, e := range told {
					require.Equal(t, info.Decisions[0].ID, e.Decision)
					require.Equal(t, ada.Reason, e.Reason, "the event has all of it")
				}
			})
		}
	}
}
