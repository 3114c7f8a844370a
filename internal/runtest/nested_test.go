package runtest

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A guard inside a guard, and one in front of a guard.

// Nothing that the inner guard demands refuses a request in the middle of its own run: the
// handler may have had its effect, and the refusal says that nothing was done.
func TestGuardInsideAGuardRefusesNothing(t *testing.T) {
	for name, opt := range map[string]idempotency.Option{
		"strict-keys": idempotency.WithStrictKeys(true),
		"small-body":  idempotency.WithLimits(idempotency.Limits{RequestBody: 1}),
		"shut-down":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			h := &guardtest.Counter{}
			g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
			inner := g.With(opt).Handler(h)
			begun := make(chan struct{})
			s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(begun)
				for name == "shut-down" { // until the guard refuses new requests
					_, _, err := idempotency.Do(r.Context(), g, idempotency.Key{Scope: "jobs", Value: "other"},
						func(context.Context) (int, error) { return 0, nil })
					if errors.Is(err, idempotency.ErrShutdown) {
						break
					}
				}
				inner.ServeHTTP(w, r)
			})))
			if name == "shut-down" {
				go func() {
					<-begun
					_ = g.Shutdown(context.WithoutCancel(t.Context()))
				}()
			}
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.EqualValues(t, 1, h.Runs.Load())
		})
	}
}

// A run that has ended holds nothing, although its context is still around: what is sent with
// it later is another request.
func TestContextOfAnEndedRunIsNotTheRun(t *testing.T) {
	var kept context.Context
	h := &guardtest.Counter{}
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	guarded := g.Handler(h)
	s := guardtest.ServeRecorder(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept = context.WithoutCancel(r.Context())
		h.ServeHTTP(w, r)
	})))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	s = guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded.ServeHTTP(w, r.WithContext(kept))
	}))
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	require.EqualValues(t, 1, h.Runs.Load())
}

// A guard of all routes and another of one of them, of one New or of two: the inner one would
// find the run of the outer one in flight, and the outer one would record its 409.
func TestGuardInsideAGuardLetsItsRunPass(t *testing.T) {
	store := idempotency.NewMemoryStore()
	for name, inner := range map[string]func(outer *idempotency.Guard, seen *guardtest.Events) *idempotency.Guard{
		"same": func(outer *idempotency.Guard, seen *guardtest.Events) *idempotency.Guard {
			return outer.With(idempotency.WithRequired(true), idempotency.WithRoute("inner"), idempotency.WithObserver(seen.Observe))
		},
		"another": func(_ *idempotency.Guard, seen *guardtest.Events) *idempotency.Guard {
			return guardtest.NewGuard(t, store, idempotency.WithObserver(seen.Observe))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, seen := &guardtest.Counter{}, &guardtest.Events{}
			outer := guardtest.NewGuard(t, store)
			middle := func(next http.Handler) http.Handler { // a run of another key in between
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _, err := idempotency.Do(r.Context(), outer, idempotency.Key{Scope: "jobs", Value: name}, func(ctx context.Context) (int, error) {
						next.ServeHTTP(w, r.WithContext(ctx))
						return 0, nil
					})
					assert.NoError(t, err)
				})
			}
			s := guardtest.ServeRecorder(t, outer.Handler(middle(inner(outer, seen).Handler(h))))
			first := s.Do(t, guardtest.Call{Key: name})
			require.Equal(t, http.StatusCreated, first.Status)
			again := s.Do(t, guardtest.Call{Key: name})
			require.True(t, again.Replayed())
			require.Equal(t, first.Body, again.Body)
			require.EqualValues(t, 1, h.Runs.Load())
			require.Equal(t, []event.Kind{event.Nested}, seen.Kinds())
		})
	}
}

// A guard inside a guard can do nothing about the run any more. So it refuses the request, at the first try, if that
// would lose settings of its own: a payout on a route that says Hold must not be made twice because of the guard
// around all routes.
func TestGuardInsideAGuardLosesNoSettings(t *testing.T) {
	refusal := func(*http.Request, []byte) (fp idempotency.Fingerprint, err error) { return fp, errors.New("no") }
	for settings, opts := range map[string][]idempotency.Option{
		"WithRecovery":        {idempotency.WithRecovery(idempotency.Hold)},
		"WithTTL":             {idempotency.WithTTL(time.Hour)},
		"WithFingerprint":     {idempotency.WithFingerprint(refusal, idempotency.RawFingerprint)},
		"WithUnrecorded":      {idempotency.WithUnrecorded("X-Secret")},
		"WithAuthorizeReplay": {idempotency.WithAuthorizeReplay(func(*http.Request, idempotency.RecordInfo) error { return nil })},
		"WithOutcome":         {idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { return idempotency.Unknown })},
		"WithResolver": {idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			return idempotency.Resolution{}, nil
		})},
		"WithDerivation":           {idempotency.WithDerivation("another", nil)},
		"WithLimits":               {idempotency.WithLimits(idempotency.Limits{ResponseBody: 1})},
		"WithSealer, WithKeptKeys": {idempotency.WithSealer(guardtest.NewSealer(t, 1)), idempotency.WithKeptKeys(true)},
	} {
		h, seen := &guardtest.Counter{}, &guardtest.Events{}
		outer := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		s := guardtest.ServeRecorder(t, outer.Handler(outer.With(append(opts, idempotency.WithObserver(seen.Observe))...).Handler(h)))
		for range 2 {
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.NoAnswer)
		}
		require.ErrorContains(t, seen.Errors()[0], "("+settings+")")
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{}).Status, "without a key there is no run")
		require.EqualValues(t, 1, h.Runs.Load())
	}
}

// A handler may have had its effect before it calls a guard that refuses so: that is not the end of a run which has done
// nothing.
func TestRefusalInTheMiddleOfARunDeniesNothing(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery)
		part := g.With(idempotency.WithTTL(time.Hour)).Handler(&guardtest.Counter{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) { part.ServeHTTP(w, r) }}
		s := guardtest.ServeRecorder(t, g.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
	})
}

// Two parts of a program that make a store each, of one client and one prefix, have one store.
func TestGuardInsideAGuardOnAnotherValueOfItsStore(t *testing.T) {
	client := guardtest.RedisClient(t, miniredis.RunT(t).Addr())
	guardtest.RequireNested(t, guardtest.RedisStore(t, client), guardtest.RedisStore(t, client))

	h, outer := &guardtest.Counter{}, guardtest.NewGuard(t, guardtest.RedisStore(t, client))
	tier := guardtest.NewGuard(t, guardtest.RedisStore(t, client, idempotency.WithPrefix("tier:")))
	s := guardtest.ServeRecorder(t, outer.Handler(tier.Handler(h)))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "another"}).Status)
	s = guardtest.ServeRecorder(t, tier.Handler(h))
	require.True(t, s.Do(t, guardtest.Call{Key: "another"}).Replayed(), "a tier with a prefix of its own has a record of its own")
}

// Problems of one code and status differ by what they say of their own request.
func TestRefusalTellsOfItsOwnRequest(t *testing.T) {
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(&guardtest.Counter{}))
	detail := func(key string) string {
		got := s.Do(t, guardtest.Call{Key: key})
		guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.KeyInvalid)
		return got.Problem.Detail
	}
	list, quoted := detail("a,b"), detail(`"a`)
	require.NotEqual(t, list, quoted)
	require.Equal(t, list, detail("c,d"))
}

// A handler may pass on a field that its client or a service has sent. A success is one, whatever it says.
func TestSuccessIsAnAnswerWhateverAFieldSays(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
		for _, code := range append(problem.Codes(), "of-somebody-else") {
			for _, status := range []int{http.StatusCreated, http.StatusSeeOther} {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.Header().Set(problem.Header, string(code))
					w.WriteHeader(status)
				}}
				s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
				first := s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, status, first.Status, code)
				guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
				require.EqualValues(t, 1, h.Runs.Load(), code)
			}
		}
	})
}

// A guard whose run takes a step and streams a redirect has sent that with a mark. The mark counts here.
func TestMarkedRedirectOfAnotherGuardFreesNoKey(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set(problem.Header, string(problem.NoAnswer))
			w.WriteHeader(http.StatusTemporaryRedirect)
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
	})
}

// A refusal that the handler passes on from another guard is not an answer. What it is depends
// on whether the other guard had looked at the key.
func TestRefusalOfAnotherGuardIsNotAnAnswer(t *testing.T) {
	notRun := map[problem.Code]bool{
		problem.KeyMissing: true, problem.KeyInvalid: true, problem.BodyUnreadable: true, problem.BodyTooLarge: true,
		problem.FingerprintFailed: true, problem.ScopeUnresolved: true, problem.ShuttingDown: true,
		problem.Unauthenticated: true,
	}
	codes := []problem.Code{
		problem.KeyMissing, problem.KeyInvalid, problem.BodyUnreadable, problem.BodyTooLarge, problem.FingerprintFailed,
		problem.ScopeUnresolved, problem.ReplayDenied, problem.KeyUnknown, problem.KeyReused, problem.InFlight,
		problem.OutcomeUnknown, problem.ResponseNotKept, problem.AnswerUnreadable, problem.StoreUnavailable,
		problem.ShuttingDown, problem.Unauthenticated, problem.TryLater, problem.NoAnswer, "a-code-of-the-future",
	}
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			code := problem.Code(r.URL.Path[1:])
			w.Header().Set(problem.Header, string(code))
			w.WriteHeader(max(http.StatusBadRequest, problem.New(code).Status))
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
		for _, code := range codes {
			c := guardtest.Call{Key: string(code), Path: "/" + string(code)}
			got := s.Do(t, c)
			shown := code
			if unknown == guardtest.IsHeld && !notRun[code] && code != problem.ResponseNotKept && code != problem.AnswerUnreadable {
				shown = problem.OutcomeUnknown // the key is held here, whatever the other guard says of its own
			}
			require.Equal(t, string(shown), got.Header.Get(problem.Header))
			want := unknown
			if notRun[code] {
				want = guardtest.RunsNext
			}
			guardtest.RequireFate(t, s, h, c, want)
		}
	})
}
