package storefaults

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

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
		info, err := guard.Lookup(t.Context(), guardtest.HeldKey)
		require.NoError(t, err)
		require.Equal(t, []string{"charge"}, info.Steps)
		require.Equal(t, []string{"wire"}, info.InDoubt)
		goesOn := idempotency.Resolution{Outcome: idempotency.Resume, NotDone: []string{"wire"}}
		require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), goesOn))
		require.NoError(t, guard.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), goesOn), "a repeated call")
		info, err = guard.Lookup(t.Context(), guardtest.HeldKey)
		require.NoError(t, err)
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
