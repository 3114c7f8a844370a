package recordtest

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

var jobKey = idempotency.Key{Scope: "billing", Value: "invoice-7"}

// hold leaves a key held.
func hold(t *testing.T, s *guardtest.Server) {
	t.Helper()
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
}

func TestHeldKeyNeverRunsByItself(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request){
		"error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"died": func(_ http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour) // without renewals: see below
		},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			st := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
			if name == "died" {
				st.On("renew", guardtest.Always(guardtest.Hang))
				st.On("hold", guardtest.Always(guardtest.Hang))
				st.On("complete", guardtest.Always(guardtest.Hang))
			}
			runs := 0
			s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold)).Handler(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					runs++
					fail(w, r)
				})))
			go func() {
				defer func() { _ = recover() }()
				_, _ = s.Try(context.Background(), guardtest.Call{Key: "k"})
			}()
			for range 25 { // the retention is a day
				time.Sleep(time.Hour)
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
			}
			require.Equal(t, 1, runs)
			st.Heal()
		})
	}
}

// Time frees a held key only where the program has said so.
func TestRetentionEndsAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithRecovery(idempotency.Hold), idempotency.WithRetention(time.Hour)).Handler(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })))
		hold(t, s)
		time.Sleep(time.Hour - time.Second)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		time.Sleep(time.Second)
		hold(t, s)
	})
}

func TestResolverIsToldWhatItNeeds(t *testing.T) {
	var id, derived string
	var seen idempotency.RecordInfo
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(),
		idempotency.WithResolver(func(_ context.Context, h idempotency.RecordInfo) (idempotency.Resolution, error) {
			seen = h
			return idempotency.Resolution{
				Outcome: idempotency.Final, Status: http.StatusCreated,
				Header: http.Header{"Location": {"/charges/1"}, "Set-Cookie": {"no=1"}}, Body: []byte(`{"id":1}`),
			}, nil
		}))
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, derived = guardtest.Op(r.Context()).ID(), idempotency.DeriveKey(r.Context(), "wire")
		_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
		_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
			return 0, errors.New("no answer")
		}, idempotency.AtMostOnce())
		http.Error(w, err.Error(), http.StatusBadGateway)
	})))
	require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Zero(t, seen, "nothing was held yet")

	for range 2 {
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, http.StatusCreated, got.Status)
		require.Equal(t, `{"id":1}`, got.Body)
		require.Equal(t, "/charges/1", got.Header.Get("Location"))
		require.Empty(t, got.Header.Get("Set-Cookie"))
	}
	require.Equal(t, idempotency.Key{Scope: "acme", Value: "k"}, seen.Key)
	require.Equal(t, id, seen.ID)
	require.Equal(t, derived, seen.DeriveKey("wire"))
	require.Equal(t, 2, seen.Attempt)
	require.Equal(t, []string{"charge"}, seen.Steps)
	require.Equal(t, []string{"wire"}, seen.InDoubt)
}

func TestResolverThatFindsNothingOutLeavesTheKeyHeld(t *testing.T) {
	type row struct {
		res    idempotency.Resolution
		err    error
		events int
	}
	guardtest.Each(t, map[string]row{
		"unknown":     {idempotency.Resolution{Outcome: idempotency.Unknown}, nil, 0},
		"error":       {idempotency.Resolution{Outcome: idempotency.Final}, errors.New("bank is closed"), 1},
		"no outcome":  {idempotency.Resolution{}, nil, 1},
		"bad status":  {idempotency.Resolution{Outcome: idempotency.Final, Status: 42}, nil, 1},
		"large body":  {idempotency.Resolution{Outcome: idempotency.Final, Body: make([]byte, 2<<20)}, nil, 1},
		"no body 204": {idempotency.Resolution{Outcome: idempotency.Final, Status: 204, Body: []byte("x")}, nil, 1},
		"panic":       {idempotency.Resolution{}, errPanics, 1},
	}, func(t *testing.T, c row) {
		var seen guardtest.Events
		var log guardtest.LockedBuffer
		h := guardtest.FailsFirst()
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold),
			idempotency.WithObserver(seen.Observe), idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
				if errors.Is(c.err, errPanics) {
					panic(c.err)
				}
				return c.res, c.err
			})).Handler(h))
		hold(t, s)
		failed := 0
		for _, kind := range seen.Kinds() {
			if kind == event.Unresolved {
				failed++
			}
		}
		require.Equal(t, c.events, failed)
		require.Equal(t, c.events, strings.Count(log.String(), `msg="idempotency: held key could not be resolved"`))
		require.NotContains(t, log.String(), "store call failed")
		require.Equal(t, c.err != nil, strings.Contains(log.String(), "idempotency: the resolver "))
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

var errPanics = errors.New("panics")

// Whoever reuses a key for another payload is told so, and has nothing resolved by it.
func TestResolverIsNotAskedForAnotherPayload(t *testing.T) {
	asked := 0
	h := guardtest.FailsFirst()
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			asked++
			return idempotency.Resolution{Outcome: idempotency.NotExecuted}, nil
		})).Handler(h))
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k", Body: "other"}), http.StatusConflict, problem.KeyReused)
	require.Zero(t, asked)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 1, asked)
}

func TestResolverIsAskedOnceAtATime(t *testing.T) {
	var asked atomic.Int32
	entered, answer := make(chan struct{}), make(chan struct{})
	h := guardtest.FailsFirst()
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold),
		idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
			asked.Add(1)
			close(entered)
			<-answer
			return idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusOK}, nil
		})).Handler(h))
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	first := make(chan guardtest.Reply)
	go func() {
		got, _ := s.Try(context.Background(), guardtest.Call{Key: "k"})
		first <- got
	}()
	<-entered
	for range 10 {
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
	}
	close(answer)
	require.True(t, (<-first).Replayed())
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	require.EqualValues(t, 1, asked.Load())
	require.EqualValues(t, 1, h.Runs.Load())
}

// What a resolver found out about one run must not settle a later one.
func TestResolverSettlesOnlyTheRunItWasAskedAbout(t *testing.T) {
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		w.WriteHeader(http.StatusInternalServerError)
	}}
	var strict *guardtest.Server
	asked := 0
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
	s := guardtest.ServeRecorder(t, guard.With(
		idempotency.WithResolver(func(ctx context.Context, held idempotency.RecordInfo) (idempotency.Resolution, error) {
			if asked++; asked > 1 {
				return idempotency.Resolution{Outcome: idempotency.Unknown}, nil
			}
			require.NoError(t, guard.Resolve(ctx, guardtest.HeldKey, held.Seen(), idempotency.Resolution{Outcome: idempotency.NotExecuted}))
			require.Equal(t, http.StatusInternalServerError, strict.Do(t, guardtest.Call{Key: "k"}).Status)
			return idempotency.Resolution{Outcome: idempotency.Final}, nil
		})).Handler(h))
	strict = guardtest.ServeRecorder(t, guard.Handler(h))
	hold(t, strict)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
	info := guardtest.Lookup(t, guard, guardtest.HeldKey)
	require.Equal(t, store.Held, info.State)
	require.Equal(t, 2, info.Attempt)
}

func TestResolverNeedsAnInspector(t *testing.T) {
	resolver := idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
		return idempotency.Resolution{}, nil
	})
	plain := guardtest.PlainStore{Store: idempotency.NewMemoryStore()}
	_, err := idempotency.New(plain, guardtest.TenantScope, resolver)
	require.ErrorIs(t, err, idempotency.ErrNoInspector)
	g := guardtest.NewGuard(t, plain)
	require.Panics(t, func() { g.With(resolver) })
	require.ErrorIs(t, g.Resolve(t.Context(), guardtest.HeldKey, store.Seen{}, idempotency.Resolution{Outcome: idempotency.NotExecuted}), idempotency.ErrNoInspector)
	require.ErrorIs(t, g.Forget(t.Context(), guardtest.HeldKey, store.Seen{}, idempotency.Decision{}), idempotency.ErrNoInspector)
	_, err = g.Lookup(t.Context(), guardtest.HeldKey)
	require.ErrorIs(t, err, idempotency.ErrNoInspector)
}

// A settleFunc settles a held key by hand.
type settleFunc func(ctx context.Context, g *idempotency.Guard, k idempotency.Key, seen store.Seen) error

// settlements are the ways to settle a held key by hand; next is how many further runs
// each allows.
var settlements = map[string]struct {
	settle settleFunc
	next   int64
}{
	"Resolve final": {func(ctx context.Context, g *idempotency.Guard, k idempotency.Key, seen store.Seen) error {
		return g.Resolve(ctx, k, seen, idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusCreated})
	}, 0},
	"Resolve not executed": {func(ctx context.Context, g *idempotency.Guard, k idempotency.Key, seen store.Seen) error {
		return g.Resolve(ctx, k, seen, idempotency.Resolution{Outcome: idempotency.NotExecuted})
	}, 1},
	"Resolve to go on": {func(ctx context.Context, g *idempotency.Guard, k idempotency.Key, seen store.Seen) error {
		return g.Resolve(ctx, k, seen, idempotency.Resolution{Outcome: idempotency.Resume})
	}, 1},
	"Forget": {func(ctx context.Context, g *idempotency.Guard, k idempotency.Key, seen store.Seen) error {
		return g.Forget(ctx, k, seen, idempotency.Decision{})
	}, 1},
}

// Whoever retries while a key is being settled gets the state before or after, and
// what may run once more runs once more.
func TestSettlingAHeldKeyAgainstConcurrentRetries(t *testing.T) {
	for storeName, st := range guardtest.SharedStores {
		for name, c := range settlements {
			t.Run(storeName+" "+name, func(t *testing.T) {
				retryWhileSettledOften(t, st(t), c.settle, c.next)
			})
		}
		for outcome, next := range map[idempotency.Outcome]int64{idempotency.Final: 0, idempotency.NotExecuted: 1, idempotency.Resume: 1} {
			t.Run(storeName+" resolver "+outcome.String(), func(t *testing.T) {
				retryWhileSettledOften(t, st(t), nil, next,
					idempotency.WithResolver(func(context.Context, idempotency.RecordInfo) (idempotency.Resolution, error) {
						res := idempotency.Resolution{Outcome: outcome}
						if outcome == idempotency.Final {
							res.Status = http.StatusCreated
						}
						return res, nil
					}))
			})
		}
	}
}

// retryWhileSettled leaves a key held, then settles it while it is retried. On a busy
// machine any call of the store may miss its deadline. A client is then told to come back,
// and does. Of an operator's call nobody can tell whether it was executed, or will be: the
// round does not count.
func retryWhileSettled(
	t *testing.T, st idempotency.Store, settle settleFunc,
	next int64, opts ...idempotency.Option,
) (counts bool) {
	t.Helper()
	key := idempotency.Key{Scope: "acme", Value: rand.Text()}
	retry := guardtest.Call{Key: key.Value}
	h := guardtest.FailsFirst()
	strict := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold))
	guard := strict.With(opts...)
	first := guardtest.ServeRecorder(t, strict.Handler(h))
	require.Eventually(t, func() bool {
		return first.Do(t, retry).Problem.Code == problem.OutcomeUnknown
	}, time.Minute, time.Millisecond)
	require.EqualValues(t, 1, h.Runs.Load())
	s := guardtest.ServeRecorder(t, guard.Handler(h))

	var info idempotency.RecordInfo
	require.Eventually(t, func() bool {
		var err error
		info, err = strict.Lookup(t.Context(), key)
		return err == nil
	}, time.Minute, time.Millisecond)

	var fresh atomic.Int64
	var unclear atomic.Bool
	var all sync.WaitGroup
	settled := make(chan struct{})
	for range 8 {
		all.Go(func() {
			for done := false; ; {
				got, err := s.Try(context.Background(), retry)
				switch {
				case err != nil:
					t.Error(err)
					return
				case got.Replayed():
					assert.Equal(t, http.StatusCreated, got.Status, "replay of %d", got.Status)
					return
				case got.Status == http.StatusCreated:
					fresh.Add(1)
					return
				case got.Problem.Code == problem.InFlight, got.Problem.Code == problem.StoreUnavailable:
				case got.Problem.Code == problem.OutcomeUnknown && !done:
				case got.Problem.Code == problem.OutcomeUnknown && unclear.Load():
					return
				default:
					t.Errorf("status %d, %s", got.Status, got.Problem.Code)
					return
				}
				select {
				case <-settled:
					done = settle != nil // what was sent before may still be answered so
				default:
				}
			}
		})
	}
	if settle != nil {
		err := settle(t.Context(), strict, key, info.Seen())
		unclear.Store(errors.Is(err, context.DeadlineExceeded))
		require.True(t, err == nil || unclear.Load(), "%v", err)
	}
	close(settled)
	all.Wait()
	if unclear.Load() {
		require.LessOrEqual(t, fresh.Load(), next)
	} else {
		require.Equal(t, next, fresh.Load())
	}
	require.Equal(t, 1+fresh.Load(), h.Runs.Load())
	return !unclear.Load()
}

// retryWhileSettledOften does that until twenty rounds have counted.
func retryWhileSettledOften(
	t *testing.T, st idempotency.Store, settle settleFunc,
	next int64, opts ...idempotency.Option,
) {
	t.Helper()
	for counted := 0; counted < 20; {
		if retryWhileSettled(t, st, settle, next, opts...) {
			counted++
		}
	}
}

// A step that was begun at most once, and is found not to have happened, is begun again:
// once, whoever retries meanwhile, and without repeating the other steps.
func TestStepThatDidNotHappenIsBegunAgain(t *testing.T) {
	sealer, err := idempotency.NewSealer([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	guardtest.OnEachSharedStore(t, func(t *testing.T, st idempotency.Store) {
		var charged, wired, began atomic.Int64
		guard := guardtest.NewGuard(t, st, idempotency.WithSealer(sealer),
			idempotency.WithResolver(func(_ context.Context, h idempotency.RecordInfo) (idempotency.Resolution, error) {
				if wired.Load() > 0 {
					return idempotency.Resolution{}, errors.New("resolved after it was done")
				}
				return idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"wire"}}, nil
			}))
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := idempotency.Step(r.Context(), "charge", func(context.Context) (int64, error) {
				return charged.Add(1), nil
			})
			if err == nil {
				_, err = idempotency.Step(r.Context(), "wire", func(context.Context) (int64, error) {
					if began.Add(1) < 3 {
						return 0, errors.New("no answer")
					}
					return wired.Add(1), nil
				}, idempotency.AtMostOnce())
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			w.WriteHeader(http.StatusCreated)
		})))
		guardtest.Together(8, func(int) {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				got, err := s.Try(context.Background(), guardtest.Call{Key: "k"})
				if err != nil || got.Status == http.StatusCreated {
					return
				}
				runtime.Gosched() // on a busy machine the others need the processor
			}
			t.Error("a client never got its answer")
		})
		require.EqualValues(t, 1, charged.Load())
		require.EqualValues(t, 1, wired.Load())
		require.EqualValues(t, 3, began.Load())
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}
