package storefaults

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// One operator has looked at a held key, and goes on to forget it. Another has found its
// answer meanwhile. What the first one has seen does not remove the answer.
func TestForgetRemovesOnlyWhatWasSeen(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		h := guardtest.FailsFirst()
		guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold))
		s := guardtest.ServeRecorder(t, guard.Handler(h))
		hold(t, s)
		seen := guardtest.Seen(t, guard)
		require.Equal(t, guardtest.HeldBy(seen.Owner, 1), seen)
		require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen,
			idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusCreated}))

		for _, stale := range []store.Seen{
			seen,
			{},
			{State: store.Corrupt},
			{Owner: seen.Owner, Attempt: 2, State: store.Completed},
			{Attempt: 1, State: store.Completed},
		} {
			require.ErrorIs(t, guard.Forget(t.Context(), guardtest.HeldKey, stale, idempotency.Decision{}), idempotency.ErrChanged, "%v", stale)
		}
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, http.StatusCreated, got.Status)

		require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, guardtest.Seen(t, guard), idempotency.Decision{}))
		require.False(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// While one operator finds out what became of a run, another forgets its key. The next run of
// the key is attempt 1 too, and is held too. What was found out about the first run says nothing
// about the second: an answer would be taken for its own, and without one its effect would come
// again.
func TestDecisionIsForOneRecord(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		for name, next := range map[string]guardtest.Call{
			"the same payload": {Key: "k"}, "another payload": {Key: "k", Body: `{"amount":2}`},
		} {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				w.WriteHeader(http.StatusInternalServerError)
			}}
			guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold))
			s := guardtest.ServeRecorder(t, guard.Handler(h))
			s.Do(t, guardtest.Call{Key: "k"})
			first := guardtest.Seen(t, guard)
			require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, first, idempotency.Decision{}))
			s.Do(t, next)
			second := guardtest.Seen(t, guard)
			require.Equal(t, first.Attempt, second.Attempt)
			require.Equal(t, first.State, second.State)

			final := idempotency.Resolution{Outcome: idempotency.Final, Status: http.StatusCreated}
			require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, first, final), idempotency.ErrChanged, name)
			require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, first, didNotHappen), idempotency.ErrChanged, name)
			require.ErrorIs(t, guard.Forget(t.Context(), guardtest.HeldKey, first, idempotency.Decision{}), idempotency.ErrChanged, name)
			guardtest.RequireProblem(t, s.Do(t, next), http.StatusConflict, problem.OutcomeUnknown)
			require.EqualValues(t, 2, h.Runs.Load())

			for range 2 { // repeated, it is still about the same run
				require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, second, final), name)
			}
			require.Equal(t, http.StatusCreated, s.Do(t, next).Status)
			require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, guardtest.Seen(t, guard), idempotency.Decision{}))
		}
	})
}

// A record that cannot be read tells neither attempt nor state. That it cannot be read is
// what an operator has seen of it, and nothing else removes it.
func TestForgetOfWhatCannotBeRead(t *testing.T) {
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, b guardtest.RedisBackend) {
		h := &guardtest.Counter{}
		guard := guardtest.NewGuard(t, st)
		s := guardtest.ServeRecorder(t, guard.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		before := guardtest.Seen(t, guard)
		client := guardtest.RedisClient(t, b.Addrs...)
		name := ""
		for _, e := range guardtest.List(t, st, store.Query{}) {
			name = e.Key
			require.NoError(t, client.HSet(t.Context(), "idem:"+name, "m", "\x01 damaged").Err())
		}

		info, err := guard.Lookup(t.Context(), guardtest.HeldKey)
		require.ErrorIs(t, err, idempotency.ErrCorrupt)
		require.Equal(t, idempotency.RecordInfo{Key: guardtest.HeldKey, Record: name, State: store.Corrupt}, info)
		require.ErrorIs(t, guard.Forget(t.Context(), guardtest.HeldKey, before, idempotency.Decision{}), idempotency.ErrCorrupt)
		require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), didNotHappen), idempotency.ErrCorrupt)
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Decision{}))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// A step that is known not to have happened is not listed as one that may have.
func TestUndoneStepsAreNotListed(t *testing.T) {
	sealer, err := idempotency.NewSealer([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	guardtest.OnEachRedis(t, func(t *testing.T, st *idempotency.RedisStore, _ guardtest.RedisBackend) {
		guard := guardtest.NewGuard(t, st, idempotency.WithSealer(sealer))
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			_, _ = idempotency.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil })
			_, _ = idempotency.Step(ctx, "mail", func(context.Context) (int, error) {
				return 0, idempotency.NotDone(errors.New("refused"))
			}, idempotency.AtMostOnce())
			_, _ = idempotency.Step(ctx, "wire", func(context.Context) (int, error) {
				return 0, errors.New("no answer")
			}, idempotency.AtMostOnce())
			w.WriteHeader(http.StatusInternalServerError)
		})))
		s.Do(t, guardtest.Call{Key: "k"})
		hold(t, s)
		info := guardtest.Lookup(t, guard, guardtest.HeldKey)
		require.Equal(t, []string{"charge"}, info.Steps)
		require.Equal(t, []string{"wire"}, info.InDoubt)
		goesOn := idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"wire"}}
		require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), goesOn))
		require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), goesOn), "a repeated call")
		info = guardtest.Lookup(t, guard, guardtest.HeldKey)
		require.Equal(t, store.Released, info.State)
		require.Equal(t, 2, info.Attempt)
		require.Equal(t, []string{"charge"}, info.Steps)
		require.Empty(t, info.InDoubt)
	})
}

// An inspectedFaultStore fails in everything except its inspection.
type inspectedFaultStore struct {
	*guardtest.FaultStore
	store.Inspector
}

// A resolveStore lets a test do something right before, and right after, the store settles a
// key by hand.
type resolveStore struct {
	*idempotency.MemoryStore
	before, after func()
	deaf          bool // renews nothing
}

func (s *resolveStore) Renew(ctx context.Context, key string, o store.Owner) error {
	if s.deaf {
		return guardtest.ErrDown
	}
	return s.MemoryStore.Renew(ctx, key, o)
}

func (s *resolveStore) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	before, after := s.before, s.after
	s.before, s.after = nil, nil
	if before != nil {
		before()
	}
	err := s.MemoryStore.Resolve(ctx, key, seen, settled)
	if after != nil {
		after()
	}
	return err
}

// wiring is a handler with a step that must not begin twice. Its first try gets no answer.
type wiring struct {
	began atomic.Int64
	// attempt is the run that was answered with success.
	attempt atomic.Int64
	// then is what the second try gets.
	then error
}

func (h *wiring) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int64, error) {
		if n := h.began.Add(1); n > 1 {
			return n, h.then
		}
		return 0, errors.New("no answer")
	}, idempotency.AtMostOnce())
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h.attempt.Store(int64(guardtest.Op(r.Context()).Attempt()))
	w.WriteHeader(http.StatusCreated)
}

var didNotHappen = idempotency.Resolution{Outcome: idempotency.NotExecuted}

// Two have found out at once that a step did not happen. The slower of them takes no marks
// away, and no values, that are those of a run which the faster one has let begin.
func TestSlowResolutionTakesNothingFromTheNextRun(t *testing.T) {
	guardtest.Each(t, map[string]error{"done": nil, "begun": errors.New("no answer")}, func(t *testing.T, then error) {
		st := &resolveStore{MemoryStore: idempotency.NewMemoryStore()}
		guard, h := guardtest.NewGuard(t, st), &wiring{then: then}
		s := guardtest.ServeRecorder(t, guard.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		hold(t, s)
		seen := guardtest.Seen(t, guard)
		st.before = func() {
			require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, didNotHappen))
			s.Do(t, guardtest.Call{Key: "k"})
			s.Do(t, guardtest.Call{Key: "k"}) // if the step was begun only, this holds the key again
		}
		require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, didNotHappen), idempotency.ErrChanged)
		s.Do(t, guardtest.Call{Key: "k"})
		require.EqualValues(t, 2, h.began.Load())
	})
}

// A duplicate that comes right after the decision runs the step: it does not meet the mark,
// and it does not meet a claim of the operator's.
func TestDuplicateOfAResolvedKeyRunsAtOnce(t *testing.T) {
	st := &resolveStore{MemoryStore: idempotency.NewMemoryStore()}
	guard, h := guardtest.NewGuard(t, st), &wiring{}
	s := guardtest.ServeRecorder(t, guard.Handler(h))
	s.Do(t, guardtest.Call{Key: "k"})
	hold(t, s)
	var got guardtest.Reply
	st.after = func() { got = s.Do(t, guardtest.Call{Key: "k"}) }
	require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, guardtest.Seen(t, guard), didNotHappen))
	require.Equal(t, http.StatusCreated, got.Status, got.Body)
	require.EqualValues(t, 3, h.attempt.Load(), "the third run is the third attempt")
}

// The process was only slow, and records the result of its step after all. An operator who
// still saw the mark must not have the step begun again.
func TestResolutionDoesNotUndoWhatHasHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &resolveStore{MemoryStore: idempotency.NewMemoryStore(), deaf: true}
		guard := guardtest.NewGuard(t, st, idempotency.WithRecovery(idempotency.Hold), idempotency.WithLease(guardtest.LeaseTime))
		sent, left := make(chan bool), make(chan bool)
		leave := sync.OnceFunc(func() { close(left) })
		defer leave()
		wired := 0
		s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
				wired++
				<-sent
				return wired, nil
			}, idempotency.AtMostOnce())
			<-left
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})))
		done := s.Start(t, guardtest.Call{Key: "k"})
		time.Sleep(guardtest.LeaseTime + time.Second)
		seen := guardtest.Seen(t, guard)
		require.Equal(t, guardtest.HeldBy(seen.Owner, 1), seen)
		st.before = func() { close(sent); synctest.Wait() }
		require.ErrorIs(t, guard.Resolve(t.Context(), guardtest.HeldKey, seen, didNotHappen), idempotency.ErrChanged)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		leave()
		require.Equal(t, http.StatusOK, (<-done).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, 1, wired)
	})
}

// Clients that retry without a pause keep nobody from settling a key. The operator needs one
// call. After it, nobody meets the mark again, and nobody but the next run holds the key.
func TestRetryLoopKeepsNoOperatorFromResolving(t *testing.T) {
	for name, st := range guardtest.SharedStores {
		t.Run(name, func(t *testing.T) {
			shared := st(t)
			for range 10 {
				retryWhileResolved(t, shared)
			}
		})
	}
}

func retryWhileResolved(t *testing.T, st idempotency.Store) {
	t.Helper()
	key := idempotency.Key{Scope: "acme", Value: rand.Text()}
	c := guardtest.Call{Key: key.Value}
	guard, h := guardtest.NewGuard(t, st), &wiring{}
	s := guardtest.ServeRecorder(t, guard.Handler(h))
	require.Eventually(t, func() bool { return s.Do(t, c).Problem.Code == problem.OutcomeUnknown }, time.Minute, time.Millisecond)
	before := guardtest.Lookup(t, guard, key)
	require.Equal(t, []string{"wire"}, before.InDoubt)

	var resolved atomic.Bool
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for end := time.Now().Add(time.Minute); time.Now().Before(end); {
				after := resolved.Load()
				got, err := s.Try(context.Background(), c)
				switch {
				case err != nil:
					t.Error(err)
					return
				case got.Status == http.StatusCreated:
					return
				case got.Problem.Code == problem.OutcomeUnknown && after:
					t.Error("held again after it was resolved")
					return
				}
			}
			t.Error("a client never got its answer")
		})
	}
	err := guard.Resolve(t.Context(), key, before.Seen(), didNotHappen)
	for errors.Is(err, context.DeadlineExceeded) { // the machine is busy
		err = guard.Resolve(t.Context(), key, before.Seen(), didNotHappen)
	}
	resolved.Store(true)
	require.NoError(t, err)
	all.Wait()
	require.EqualValues(t, 2, h.began.Load())
	// Nobody else has claimed the key, so nobody was told that another run is in flight.
	require.EqualValues(t, before.Attempt+1, h.attempt.Load())
}

// A guard that cannot read the marks of steps cannot take them away, and settles nothing: the
// next run would find them and be held again.
func TestMarksThatCannotBeReadAreNotResolved(t *testing.T) {
	sealer, err := idempotency.NewSealer([]byte(strings.Repeat("k", 32)))
	require.NoError(t, err)
	st := idempotency.NewMemoryStore()
	guard := guardtest.NewGuard(t, st, idempotency.WithSealer(sealer))
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = idempotency.Step(r.Context(), "wire", func(context.Context) (int, error) {
			return 0, errors.New("no answer")
		}, idempotency.AtMostOnce())
		w.WriteHeader(http.StatusInternalServerError)
	})))
	s.Do(t, guardtest.Call{Key: "k"})
	hold(t, s)
	before := guardtest.Lookup(t, guard, guardtest.HeldKey)
	require.ErrorIs(t, guardtest.NewGuard(t, st).Resolve(t.Context(), guardtest.HeldKey, before.Seen(), didNotHappen), idempotency.ErrUnreadableHere)
	after := guardtest.Lookup(t, guard, guardtest.HeldKey)
	require.Equal(t, before.Seen(), after.Seen())
	require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, before.Seen(), didNotHappen))
}

// hold leaves a key held.
func hold(t *testing.T, s *guardtest.Server) {
	t.Helper()
	require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
}
