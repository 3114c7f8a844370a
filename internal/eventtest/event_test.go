package eventtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// only returns the events of a kind.
func only(events *guardtest.Events, kind event.Kind) []event.Event {
	return slices.DeleteFunc(events.All(), func(e event.Event) bool { return e.Kind != kind })
}

// Each event names record, scope, operation and route, so that an alert can.
func TestEventsSayWhoseAndWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var id string
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id = guardtest.Op(r.Context()).ID()
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "done")
		})
		seen := &guardtest.Events{}
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(seen.Observe),
			idempotency.WithRoute("POST /charges"), idempotency.WithWait(time.Minute))
		p := guardtest.ServeRecorder(t, guard.Handler(h))
		call := guardtest.Call{Key: "k", Tenant: "acme"}
		first := p.Start(t, call)
		time.Sleep(300 * time.Millisecond)
		require.True(t, p.Do(t, call).Replayed())
		<-first
		time.Sleep(time.Minute)
		p.Do(t, call)
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k", Tenant: "acme", Body: "other"}), http.StatusConflict, problem.KeyReused)

		events := seen.All()
		require.Len(t, events, 4)
		for _, e := range events {
			require.Equal(t, "acme", e.Scope)
			require.Equal(t, "POST /charges", e.Route)
			require.Equal(t, http.MethodPost, e.Method)
			require.Len(t, e.Record, 43)
			require.Equal(t, events[0].Record, e.Record)
			require.Equal(t, 1, e.Attempt)
			if e.Kind != event.Refused {
				require.Equal(t, id, e.OperationID)
				require.EqualValues(t, 4, e.Size)
				require.Equal(t, http.StatusCreated, e.Status)
			}
		}
		replays := only(seen, event.Replay)
		require.Equal(t, 700*time.Millisecond, replays[0].Waited)
		require.Zero(t, replays[0].Age)
		require.Zero(t, replays[1].Waited)
		require.Equal(t, time.Minute, replays[1].Age)
		require.Equal(t, time.Second, only(seen, event.Run)[0].Duration)
	})
}

// Without a label the route is the pattern of the router outside of the guard.
func TestRouteIsThePatternByDefault(t *testing.T) {
	events := &guardtest.Events{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe))
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", guard.Handler(guardtest.Answering(0, "done")))
	mux.Handle("POST /payouts", guard.With(idempotency.WithRoute("payouts")).Handler(guardtest.Answering(0, "done")))
	s := guardtest.ServeRecorder(t, mux)
	s.Do(t, guardtest.Call{Key: "a", Path: "/orders/7"})
	s.Do(t, guardtest.Call{Key: "b", Path: "/payouts"})
	require.Equal(t, "POST /orders/{id}", events.All()[0].Route)
	require.Equal(t, "payouts", events.All()[1].Route)
}

// The share of requests without a key is how the adoption of keys is measured.
func TestRequestWithoutAKeyIsReported(t *testing.T) {
	p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"), idempotency.WithRoute("r"))
	p.Do(t, guardtest.Call{})
	require.Equal(t, []event.Event{{Kind: event.Bypassed, Method: http.MethodPost, Route: "r"}}, p.Events.All())
	p.Do(t, guardtest.Call{Method: http.MethodGet})
	require.Len(t, p.Events.All(), 1, "the method is not protected")
}

// A key that becomes held is an incident, whether or not a client asks for it again. It is
// reported once for each run in each process.
func TestHeldKeyIsReportedOnce(t *testing.T) {
	store := idempotency.NewMemoryStore()
	fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	p := guardtest.NewProcess(t, store, fails, idempotency.WithRecovery(idempotency.Hold))
	other := guardtest.NewProcess(t, store, fails, idempotency.WithRecovery(idempotency.Hold))
	call := guardtest.Call{Key: "k"}
	p.Do(t, call)
	for range 3 {
		guardtest.RequireProblem(t, p.Do(t, call), http.StatusConflict, problem.OutcomeUnknown)
		guardtest.RequireProblem(t, other.Do(t, call), http.StatusConflict, problem.OutcomeUnknown)
	}
	for _, events := range []*guardtest.Events{p.Events, other.Events} {
		require.Equal(t, 1, events.Count(event.Held))
		e := only(events, event.Held)[0]
		require.True(t, e.Held)
		require.Equal(t, 1, e.Attempt)
		require.NotEmpty(t, e.OperationID)
	}
	require.Equal(t, event.CauseUnknown, only(p.Events, event.Held)[0].Cause)
	require.Equal(t, event.CauseFound, only(other.Events, event.Held)[0].Cause)
	require.True(t, only(p.Events, event.Run)[0].Held)
	require.True(t, only(p.Events, event.Refused)[0].Held)
}

// A held key tells its cause, as far as its process knows.
func TestHeldKeyTellsItsCause(t *testing.T) {
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	for cause, c := range map[event.Cause]struct {
		run  http.HandlerFunc
		opts []idempotency.Option
	}{
		event.CauseUnknown: {fails, []idempotency.Option{idempotency.WithRecovery(idempotency.Hold)}},
		event.CausePanic: {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			[]idempotency.Option{idempotency.WithRecovery(idempotency.Hold)},
		},
		event.CauseAttempts: {fails, []idempotency.Option{idempotency.WithRecovery(idempotency.HoldAfter(2))}},
		event.CauseStep:     {guardtest.InDoubt("charge"), nil},
		event.CauseSaid: {
			func(w http.ResponseWriter, r *http.Request) {
				guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
				w.WriteHeader(http.StatusAccepted)
			},
			[]idempotency.Option{idempotency.WithRecovery(idempotency.Hold)},
		},
		event.CauseNotRecorded: {
			func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
			[]idempotency.Option{idempotency.WithSealer(guardtest.FailingSealer{Sealer: guardtest.NewSealer(t, 1)})},
		},
	} {
		t.Run(string(cause), func(t *testing.T) {
			events := &guardtest.Events{}
			guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), append(c.opts, idempotency.WithObserver(events.Observe))...)
			p := guardtest.ServeRecorder(t, guard.Handler(c.run))
			for range 2 { // the second finds the mark of the step
				_ = guardtest.PanicOf(func() { p.Do(t, guardtest.Call{Key: "k"}) })
			}
			held := only(events, event.Held)
			require.Len(t, held, 1)
			require.Equal(t, cause, held[0].Cause)
			require.Equal(t, cause, guardtest.Lookup(t, guard, guardtest.HeldKey).Cause)
		})
	}
}

// A key that is forgotten and held again within the same millisecond is held by another run.
func TestKeyThatIsHeldAgainAtOnceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		store := idempotency.NewMemoryStore()
		operator := guardtest.NewGuard(t, store)
		p := guardtest.NewProcess(t, store, fails, idempotency.WithRecovery(idempotency.Hold))
		for n := range 3 {
			p.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, n+1, p.Events.Count(event.Held))
			guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
			require.Equal(t, n+1, p.Events.Count(event.Held), "the same run")
			require.NoError(t, operator.Forget(t.Context(), guardtest.HeldKey, guardtest.Seen(t, operator), idempotency.Decision{}))
		}
	})
}

// A hold that ends by itself is reported before its end, whoever meets the key.
func TestEndOfAHoldIsReportedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { w.WriteHeader(http.StatusBadGateway) }}
		shared := idempotency.NewMemoryStore()
		ends := []idempotency.Option{idempotency.WithRecovery(idempotency.Hold), idempotency.WithRetention(50 * time.Hour)}
		a, b := guardtest.NewProcess(t, shared, h, ends...), guardtest.NewProcess(t, shared, h, ends...)
		events := &guardtest.Events{}
		operator := guardtest.NewGuard(t, shared, idempotency.WithObserver(events.Observe))
		call, key := guardtest.Call{Key: "k"}, guardtest.HeldKey
		a.Do(t, call)
		time.Sleep(44 * time.Hour)
		guardtest.RequireProblem(t, a.Do(t, call), http.StatusConflict, problem.OutcomeUnknown)
		_ = guardtest.Lookup(t, operator, key)
		require.Zero(t, a.Events.Count(event.HoldEnding))
		require.Empty(t, events.All())

		time.Sleep(2 * time.Hour)
		for range 3 {
			a.Do(t, call)
			b.Do(t, guardtest.Call{Key: "k", Body: "another"})
			_ = guardtest.Lookup(t, operator, key)
		}
		for _, seen := range []*guardtest.Events{a.Events, b.Events, events} {
			ending := only(seen, event.HoldEnding)
			require.Len(t, ending, 1)
			require.Equal(t, 4*time.Hour, ending[0].Duration)
			require.Equal(t, 1, ending[0].Attempt)
			require.Equal(t, "acme", ending[0].Scope)
		}
		require.True(t, event.HoldEnding.Incident())
		time.Sleep(4 * time.Hour)
		a.Do(t, call)
		require.EqualValues(t, 2, h.Runs.Load())

		// Without an end there is nothing to report.
		endless := guardtest.NewProcess(t, shared, h, idempotency.WithRecovery(idempotency.Hold))
		endless.Do(t, guardtest.Call{Key: "endless"})
		time.Sleep(10 * 365 * 24 * time.Hour)
		guardtest.RequireProblem(t, endless.Do(t, guardtest.Call{Key: "endless"}), http.StatusConflict, problem.OutcomeUnknown)
		require.Zero(t, endless.Events.Count(event.HoldEnding))
	})
}

// So is one of a function of Do, however short its retention is.
func TestEndOfAShortHoldIsReported(t *testing.T) {
	events := &guardtest.Events{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe),
		idempotency.WithRecovery(idempotency.Hold), idempotency.WithRetention(10*time.Minute))
	for range 3 {
		_, _, err := idempotency.Do(t.Context(), guard, guardtest.HeldKey, func(context.Context) (int, error) { return 0, io.ErrUnexpectedEOF })
		require.Error(t, err)
	}
	require.Equal(t, 1, events.Count(event.HoldEnding))
}

func TestStepsAreReported(t *testing.T) {
	failed := errors.New("downstream is away")
	steps := func(ctx context.Context, attempt int) {
		value := func(context.Context) (int, error) { return 1, nil }
		fail := func(err error) func(context.Context) (int, error) {
			return func(context.Context) (int, error) { return 0, err }
		}
		_, _ = idempotency.Step(ctx, "recorded", value)
		_, _ = idempotency.Step(ctx, "declined", fail(idempotency.Permanent(failed)))
		_, _ = idempotency.Step(ctx, "failed", fail(failed))
		_, _ = idempotency.Step(ctx, "not done", fail(idempotency.NotDone(failed)))
		_, _ = idempotency.Step(ctx, "once", fail(failed), idempotency.AtMostOnce())
		_, _ = idempotency.Step(ctx, "once", value)
		_, _ = idempotency.Step(ctx, "unencodable", func(context.Context) (func(), error) { return func() {}, nil })
		if attempt == 2 {
			_, _ = idempotency.Step(ctx, "", value)
		}
	}
	events := &guardtest.Events{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe))
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		steps(r.Context(), guardtest.Op(r.Context()).Attempt())
		w.WriteHeader(http.StatusBadGateway)
	})))
	type said struct {
		attempt int
		step    string
		result  event.StepResult
	}
	told := func() (all []said) {
		for _, e := range only(events, event.Step) {
			all = append(all, said{e.Attempt, e.Step, e.Result})
			require.Equal(t, e.Err == nil, e.Result == event.StepRecorded && e.Step != "declined" || e.Result == event.StepFound && e.Step != "declined",
				"%s: %v", e.Step, e.Err)
		}
		return all
	}
	s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, []said{
		{1, "recorded", event.StepRecorded},
		{1, "declined", event.StepRecorded},
		{1, "failed", event.StepFailed},
		{1, "not done", event.StepNotDone},
		{1, "once", event.StepFailed},
		{1, "once", event.StepNotBegun},
		{1, "unencodable", event.StepNotRecorded},
	}, told())
	s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, []said{
		{2, "recorded", event.StepFound},
		{2, "declined", event.StepFound},
		{2, "failed", event.StepFailed},
		{2, "not done", event.StepNotDone},
		{2, "once", event.StepUncertain},
		{2, "once", event.StepNotBegun},
		{2, "unencodable", event.StepNotRecorded},
		{2, "", event.StepNotBegun},
	}, told()[7:])
}

// A consumer's refusals are events like a client's, although it has an error in hand. They
// are not logged a second time.
func TestRefusalsOfDoAreReported(t *testing.T) {
	var log guardtest.LockedBuffer
	events := &guardtest.Events{}
	store := idempotency.NewMemoryStore()
	guard := guardtest.NewGuard(t, store, idempotency.WithObserver(events.Observe), idempotency.WithRoute("payouts"),
		idempotency.WithRecovery(idempotency.Hold), idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	do := func(value string, fail error, payload string) (idempotency.Result, error) {
		_, result, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "acme", Value: value},
			func(context.Context) (string, error) { return "done", fail }, idempotency.WithPayload([]byte(payload)))
		return result, err
	}
	_, err := do("a", nil, "1")
	require.NoError(t, err)
	_, err = do("a", nil, "2")
	require.ErrorIs(t, err, idempotency.ErrKeyReused)
	result, err := do("a", nil, "1")
	require.NoError(t, err)
	require.True(t, result.Replayed)
	_, err = do("b", errors.New("no answer"), "1")
	require.Error(t, err)
	require.NotContains(t, log.String(), "no answer")
	_, err = do("b", nil, "1")
	require.ErrorIs(t, err, idempotency.ErrHeld)
	require.NoError(t, guard.Shutdown(t.Context()))
	_, err = do("a", nil, "1")
	require.ErrorIs(t, err, idempotency.ErrShutdown)

	var told []any
	for _, e := range events.All() {
		require.Equal(t, "payouts", e.Route)
		require.Equal(t, "acme", e.Scope)
		require.Zero(t, e.Status)
		if e.Kind == event.Refused {
			told = append(told, e.Code)
		} else {
			told = append(told, e.Kind)
		}
	}
	require.Equal(t, []any{
		event.Run, problem.KeyReused, event.Replay, event.Held, event.Run,
		problem.OutcomeUnknown, problem.ShuttingDown,
	}, told)
	require.NotContains(t, log.String(), "refused")
}

// Each kind has a name of its own, and each incident is in the log.
func TestIncidents(t *testing.T) {
	incidents := event.Incidents()
	require.Contains(t, incidents, event.Held)
	require.Contains(t, incidents, event.RecordingLost)
	require.NotContains(t, incidents, event.Run)
	for _, kind := range incidents {
		require.True(t, kind.Incident())
	}
	require.False(t, event.Replay.Incident())
	require.False(t, event.Kind("other").Incident())
}

// A decision by hand is in the log and in an event, with who made it and why.
func TestDecisionsAreReported(t *testing.T) {
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
			info := guardtest.Lookup(t, guard, k)
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
		recorded := guardtest.Lookup(t, guard, a)
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
		info := guardtest.Lookup(t, guard, idempotency.Key{Record: e.Record})
		require.Len(t, info.Decisions, 1)
		require.Equal(t, e.Decision, info.Decisions[0].ID)
		require.Equal(t, want, info.Decisions[0].Actor)
		require.Equal(t, idempotency.Final, info.Decisions[0].Outcome)
	}
}

// A decision that is sent again is the same decision, and that of somebody else is refused: the record names the one
// who has decided.
func TestADecisionIsMadeOnce(t *testing.T) {
	for name, open := range guardtest.SharedStores {
		for outcome, res := range map[string]idempotency.Resolution{
			"final": {Outcome: idempotency.Final, Status: http.StatusCreated}, "resume": {Outcome: idempotency.Resume}, "not-executed": {Outcome: idempotency.NotExecuted},
		} {
			t.Run(name+"/"+outcome, func(t *testing.T) {
				events := &guardtest.Events{}
				guard := guardtest.NewGuard(t, open(t), idempotency.WithObserver(events.Observe), idempotency.WithRecovery(idempotency.Hold))
				fails := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
				s := guardtest.ServeRecorder(t, guard.Handler(fails))
				s.Do(t, guardtest.Call{Key: "k"})
				k := idempotency.Key{Record: only(events, event.Held)[0].Record}
				seen := guardtest.Lookup(t, guard, k)
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
				info := guardtest.Lookup(t, guard, k)
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
