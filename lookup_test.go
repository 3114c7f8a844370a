package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A route is a guarded handler on /charges and, behind the same guard, the handler that
// tells about its keys, on /keys.
func route(t *testing.T, guard *idempotency.Guard, h http.HandlerFunc) *server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(h))
	mux.Handle("/keys", guard.LookupHandler())
	return serveRecorder(t, mux)
}

func lookup(tenant string) call {
	return call{method: http.MethodGet, path: "/keys", key: "k", tenant: tenant, noBody: true}
}

// requireStatus checks what a client is told about its key.
func requireStatus(t *testing.T, got reply, want map[string]any) {
	t.Helper()
	require.Equal(t, http.StatusOK, got.status, got.body)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	require.Equal(t, "k", got.header.Get("Idempotency-Key"))
	var told map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.body), &told))
	require.Equal(t, want, told)
}

func TestLookupTellsEachState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &faultInspector{&faultStore{}, idempotency.NewMemoryStore()}
		store.behind = store.inspected
		guard := newGuard(t, store, idempotency.WithLease(9*time.Second), idempotency.WithTTL(time.Hour))
		leave := make(chan int)
		s := route(t, guard, func(w http.ResponseWriter, r *http.Request) {
			_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			if status := <-leave; status != 0 {
				w.WriteHeader(status)
			} else {
				op, _ := idempotency.FromContext(r.Context())
				op.SetOutcome(idempotency.NotExecuted)
			}
		})
		begin := func() <-chan reply {
			done := make(chan reply, 1)
			go func() { done <- s.attempt(t, call{key: "k"}) }()
			synctest.Wait()
			return done
		}
		info := func() idempotency.RecordInfo {
			info, err := guard.Lookup(t.Context(), heldKey)
			require.NoError(t, err)
			return info
		}

		requireProblem(t, s.do(t, lookup("")), http.StatusNotFound, problem.KeyUnknown)
		_, err := guard.Lookup(t.Context(), heldKey)
		require.ErrorIs(t, err, idempotency.ErrNotFound)

		done := begin()
		time.Sleep(2 * time.Second)
		requireStatus(t, s.do(t, lookup("")), map[string]any{
			"state": "claimed", "attempt": 1.0, "age_seconds": 2.0, "expires_seconds": 3598.0,
		})
		require.Equal(t, 7*time.Second, info().Lease)
		require.Equal(t, []string{"charge"}, info().Steps)
		id := info().ID
		require.Len(t, id, 32)

		leave <- 0
		<-done
		time.Sleep(time.Second)
		requireStatus(t, s.do(t, lookup("")), map[string]any{
			"state": "released", "attempt": 1.0, "age_seconds": 1.0, "expires_seconds": 3599.0,
		})

		store.on("renew", always(hang))
		done = begin()
		time.Sleep(10 * time.Second)
		requireStatus(t, s.do(t, lookup("")), map[string]any{
			"state": "lapsed", "attempt": 2.0, "age_seconds": 10.0, "expires_seconds": 3590.0,
		})
		store.heal()
		leave <- http.StatusCreated
		<-done
		time.Sleep(time.Minute)
		requireStatus(t, s.do(t, lookup("")), map[string]any{
			"state": "completed", "attempt": 2.0, "age_seconds": 60.0, "expires_seconds": 3540.0, "status": 201.0,
		})
		require.Equal(t, http.StatusCreated, info().Status)
		require.Equal(t, id, info().ID, "the same over all attempts")

		require.NoError(t, guard.Forget(t.Context(), heldKey))
		require.NoError(t, guard.Forget(t.Context(), heldKey), "forgetting what is not there is success")
		requireProblem(t, s.do(t, lookup("")), http.StatusNotFound, problem.KeyUnknown)

		s = route(t, guard.With(idempotency.WithRecovery(idempotency.Hold)), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		s.do(t, call{key: "k"})
		requireStatus(t, s.do(t, lookup("")), map[string]any{
			"state": "held", "attempt": 1.0, "age_seconds": 0.0, "expires_seconds": 3600.0,
		})
		require.NotEqual(t, id, info().ID, "another record")
	})
}

// A faultInspector is a faultStore that can be inspected; the calls are named "get".
type faultInspector struct {
	*faultStore
	inspected *idempotency.MemoryStore
}

func (s *faultInspector) SaveStep(ctx context.Context, key string, o idempotency.Owner, name string, value []byte) error {
	return stepFaultStore{s.faultStore}.SaveStep(ctx, key, o, name, value)
}

func (s *faultInspector) Get(ctx context.Context, key string) (rec idempotency.Record, err error) {
	err = s.call(ctx, "get", func(idempotency.Store) error {
		rec, err = s.inspected.Get(ctx, key)
		return err
	})
	return rec, err
}

func (s *faultInspector) List(ctx context.Context, visit func(string, idempotency.Record) bool) error {
	return s.inspected.List(ctx, visit)
}

func (s *faultInspector) Resolve(ctx context.Context, key string, attempt int, c *idempotency.Completion) error {
	return s.call(ctx, "resolve", func(idempotency.Store) error {
		return s.inspected.Resolve(ctx, key, attempt, c)
	})
}

func (s *faultInspector) Forget(ctx context.Context, key string, attempt int) error {
	return s.call(ctx, "forget", func(idempotency.Store) error { return s.inspected.Forget(ctx, key, attempt) })
}

func TestLookupRefusals(t *testing.T) {
	t.Parallel()
	store := &faultInspector{&faultStore{}, idempotency.NewMemoryStore()}
	store.behind = store.inspected
	denied := false
	guard := newGuard(t, store, idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
		if info.Key != (idempotency.Key{Scope: "acme", Value: "k"}) || info.Status != http.StatusCreated {
			t.Errorf("asked about %+v", info)
		}
		if denied {
			return errors.New("suspended")
		}
		return nil
	}))
	s := route(t, guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	s.do(t, call{key: "k"})

	require.Equal(t, http.StatusOK, s.do(t, lookup("")).status)
	requireProblem(t, s.do(t, lookup("globex")), http.StatusNotFound, problem.KeyUnknown)
	requireProblem(t, s.do(t, lookup("unknown")), http.StatusForbidden, problem.ScopeUnresolved)
	requireProblem(t, s.do(t, lookup("empty")), http.StatusForbidden, problem.ScopeUnresolved)
	keyless := lookup("")
	keyless.key = ""
	requireProblem(t, s.do(t, keyless), http.StatusBadRequest, problem.KeyMissing)
	invalid := lookup("")
	invalid.key = "a,b"
	requireProblem(t, s.do(t, invalid), http.StatusBadRequest, problem.KeyInvalid)

	head := lookup("")
	head.method = http.MethodHead
	got := s.do(t, head)
	require.Equal(t, http.StatusOK, got.status)
	require.Empty(t, got.body)
	require.NotEqual(t, "0", got.header.Get("Content-Length"))
	post := lookup("")
	post.method = http.MethodPost
	got = s.do(t, post)
	require.Equal(t, http.StatusMethodNotAllowed, got.status)
	require.Equal(t, "GET, HEAD", got.header.Get("Allow"))

	denied = true
	requireProblem(t, s.do(t, lookup("")), http.StatusForbidden, problem.ReplayDenied)
	denied = false

	store.on("get", always(refuse))
	got = s.do(t, lookup(""))
	requireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
	require.NotContains(t, got.body, errDown.Error())
	store.on("get", always(failWith(idempotency.ErrCorrupt)))
	requireProblem(t, s.do(t, lookup("")), http.StatusInternalServerError, problem.AnswerUnreadable)
}

// What cannot be read can be forgotten; what runs cannot; a store that hangs does not
// make the caller hang.
func TestForgetOnAStoreThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &faultInspector{&faultStore{}, idempotency.NewMemoryStore()}
		store.behind = store.inspected
		h := &counter{}
		guard := newGuard(t, store)
		s := serveRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if h.runs.Load() == 0 {
				if err := guard.Forget(r.Context(), heldKey); !errors.Is(err, idempotency.ErrChanged) {
					t.Errorf("a run in flight is forgotten: %v", err)
				}
			}
			h.ServeHTTP(w, r)
		})))
		s.do(t, call{key: "k"})

		store.on("forget", always(hang))
		start := time.Now()
		require.Error(t, guard.Forget(t.Context(), heldKey))
		require.Less(t, time.Since(start), 10*time.Second)
		store.heal()
		store.on("forget", nil)
		store.on("get", always(refuse))
		require.ErrorIs(t, guard.Forget(t.Context(), heldKey), errDown)
		store.on("get", nil)
		require.True(t, s.do(t, call{key: "k"}).replayed())

		store.on("get", always(failWith(idempotency.ErrCorrupt)))
		store.on("forget", always(failWith(nil)))
		before := store.count("forget")
		require.NoError(t, guard.Forget(t.Context(), heldKey))
		require.Equal(t, before+1, store.count("forget"))
		store.on("get", nil)
		store.on("forget", nil)

		require.NoError(t, guard.Forget(t.Context(), heldKey))
		require.False(t, s.do(t, call{key: "k"}).replayed())
		require.EqualValues(t, 2, h.runs.Load())
	})
}
