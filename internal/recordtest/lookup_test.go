package recordtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
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

// A route is a guarded handler on /charges and, behind the same guard, the handler that
// tells about its keys, on /keys.
func route(t *testing.T, guard *idempotency.Guard, h http.HandlerFunc) *guardtest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(h))
	mux.Handle("/keys", guard.LookupHandler())
	return guardtest.ServeRecorder(t, mux)
}

func lookup(tenant string) guardtest.Call {
	return guardtest.Call{Method: http.MethodGet, Path: "/keys", Key: "k", Tenant: tenant, NoBody: true}
}

// requireStatus checks what a client is told about its key.
func requireStatus(t *testing.T, got guardtest.Reply, want map[string]any) {
	t.Helper()
	require.Equal(t, http.StatusOK, got.Status, got.Body)
	require.Equal(t, "application/json", got.Header.Get("Content-Type"))
	require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
	require.Equal(t, "k", got.Header.Get("Idempotency-Key"))
	var told map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.Body), &told))
	require.Equal(t, want, told)
}

func TestLookupTellsEachState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newListed()
		guard := guardtest.NewGuard(t, st, idempotency.WithLease(9*time.Second), idempotency.WithTTL(time.Hour))
		leave := make(chan int)
		s := route(t, guard, func(w http.ResponseWriter, r *http.Request) {
			_, _ = idempotency.Step(r.Context(), "charge", func(context.Context) (int, error) { return 1, nil })
			if status := <-leave; status != 0 {
				w.WriteHeader(status)
			} else {
				guardtest.Op(r.Context()).SetOutcome(idempotency.NotExecuted)
			}
		})
		begin := func() <-chan guardtest.Reply {
			done := make(chan guardtest.Reply, 1)
			go func() { done <- s.Attempt(t, guardtest.Call{Key: "k"}) }()
			synctest.Wait()
			return done
		}
		info := func() idempotency.RecordInfo {
			info := guardtest.Lookup(t, guard, guardtest.HeldKey)
			return info
		}

		guardtest.RequireProblem(t, s.Do(t, lookup("")), http.StatusNotFound, problem.KeyUnknown)
		_, err := guard.Lookup(t.Context(), guardtest.HeldKey)
		require.ErrorIs(t, err, idempotency.ErrNotFound)

		done := begin()
		time.Sleep(2 * time.Second)
		requireStatus(t, s.Do(t, lookup("")), map[string]any{
			"state": "claimed", "attempt": 1.0, "age_seconds": 2.0, "expires_seconds": 3598.0,
		})
		require.Equal(t, 7*time.Second, info().Lease)
		require.Equal(t, []string{"charge"}, info().Steps)
		id := info().ID
		require.Len(t, id, 32)

		leave <- 0
		<-done
		time.Sleep(time.Second)
		requireStatus(t, s.Do(t, lookup("")), map[string]any{
			"state": "released", "attempt": 1.0, "age_seconds": 1.0, "expires_seconds": 3599.0,
		})

		st.On("renew", guardtest.Always(guardtest.Hang))
		done = begin()
		time.Sleep(10 * time.Second)
		requireStatus(t, s.Do(t, lookup("")), map[string]any{
			"state": "lapsed", "attempt": 2.0, "age_seconds": 10.0, "expires_seconds": 3590.0,
		})
		st.Heal()
		leave <- http.StatusCreated
		<-done
		time.Sleep(time.Minute)
		requireStatus(t, s.Do(t, lookup("")), map[string]any{
			"state": "completed", "attempt": 2.0, "age_seconds": 60.0, "expires_seconds": 3540.0, "status": 201.0,
		})
		require.Equal(t, http.StatusCreated, info().Status)
		require.Equal(t, id, info().ID, "the same over all attempts")

		seen := info().Seen()
		require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, seen, idempotency.Decision{}))
		require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, seen, idempotency.Decision{}), "forgetting what is not there is success")
		guardtest.RequireProblem(t, s.Do(t, lookup("")), http.StatusNotFound, problem.KeyUnknown)

		s = route(t, guard.With(idempotency.WithRecovery(idempotency.Hold)), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
		})
		s.Do(t, guardtest.Call{Key: "k"})
		requireStatus(t, s.Do(t, lookup("")), map[string]any{
			"state": "held", "attempt": 1.0, "age_seconds": 0.0,
		})
		require.Equal(t, id, info().ID, "the same intent, although the record is another")
	})
}

// A faultInspector is a FaultStore that can be inspected; the calls are named "get", and so on.
type faultInspector struct {
	*guardtest.FaultStore
	inspected *idempotency.MemoryStore
}

// callFor names a call: "get-own" is for a record of the library itself.
func callFor(call, key string) string {
	if store.IsOwn(key) {
		return call + "-own"
	}
	return call
}

func (s *faultInspector) SaveStep(ctx context.Context, key string, o store.Owner, name string, value []byte) error {
	return guardtest.StepFaultStore{FaultStore: s.FaultStore}.SaveStep(ctx, key, o, name, value)
}

func (s *faultInspector) Get(ctx context.Context, key string) (rec store.Record, err error) {
	err = s.Call(ctx, callFor("get", key), func(idempotency.Store) error {
		rec, err = s.inspected.Get(ctx, key)
		return err
	})
	return rec, err
}

func (s *faultInspector) GetAnswer(ctx context.Context, key string) (rec store.Record, err error) {
	err = s.Call(ctx, "get-answer", func(idempotency.Store) error {
		rec, err = s.inspected.GetAnswer(ctx, key)
		return err
	})
	return rec, err
}

func (s *faultInspector) Resolve(ctx context.Context, key string, seen store.Seen, settled store.Settlement) error {
	return s.Call(ctx, "resolve", func(idempotency.Store) error {
		return s.inspected.Resolve(ctx, key, seen, settled)
	})
}

func (s *faultInspector) Forget(ctx context.Context, key string, seen store.Seen) error {
	return s.Call(ctx, callFor("forget", key), func(idempotency.Store) error { return s.inspected.Forget(ctx, key, seen) })
}

func TestLookupRefusals(t *testing.T) {
	st := newListed()
	denied := false
	guard := guardtest.NewGuard(t, st, idempotency.WithAuthorizeReplay(func(_ *http.Request, info idempotency.RecordInfo) error {
		if info.Key != (idempotency.Key{Scope: "acme", Value: "k"}) || info.Status != http.StatusCreated {
			t.Errorf("asked about %+v", info)
		}
		if denied {
			return errors.New("suspended")
		}
		return nil
	}))
	s := route(t, guard, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	s.Do(t, guardtest.Call{Key: "k"})

	require.Equal(t, http.StatusOK, s.Do(t, lookup("")).Status)
	guardtest.RequireProblem(t, s.Do(t, lookup("globex")), http.StatusNotFound, problem.KeyUnknown)
	guardtest.RequireProblem(t, s.Do(t, lookup("unknown")), http.StatusForbidden, problem.ScopeUnresolved)
	guardtest.RequireProblem(t, s.Do(t, lookup("empty")), http.StatusForbidden, problem.ScopeUnresolved)
	for key, code := range map[string]problem.Code{"": problem.KeyMissing, "a,b": problem.KeyInvalid} {
		c := lookup("")
		c.Key = key
		guardtest.RequireProblem(t, s.Do(t, c), http.StatusBadRequest, code)
	}

	overTheWire := guardtest.ServeHTTP1(t, guard.LookupHandler())
	head := lookup("")
	got := overTheWire.Do(t, head)
	length := strconv.Itoa(len(got.Body))
	head.Method = http.MethodHead
	got = overTheWire.Do(t, head)
	require.Equal(t, http.StatusOK, got.Status)
	require.Empty(t, got.Body)
	require.Equal(t, length, got.Header.Get("Content-Length"))
	post := lookup("")
	post.Method = http.MethodPost
	got = s.Do(t, post)
	require.Equal(t, http.StatusMethodNotAllowed, got.Status)
	require.Equal(t, "GET, HEAD", got.Header.Get("Allow"))

	denied = true
	guardtest.RequireProblem(t, s.Do(t, lookup("")), http.StatusForbidden, problem.ReplayDenied)
	denied = false

	st.On("get", guardtest.Always(guardtest.Refuse))
	got = s.Do(t, lookup(""))
	guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
	require.NotContains(t, got.Body, guardtest.ErrDown.Error())
	st.On("get", guardtest.Always(guardtest.FailWith(idempotency.ErrCorrupt)))
	guardtest.RequireProblem(t, s.Do(t, lookup("")), http.StatusInternalServerError, problem.AnswerUnreadable)
}

// A store that hangs does not make the caller hang, and one that fails forgets nothing.
func TestForgetOnAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, h := newListed(), &guardtest.Counter{}
		guard := guardtest.NewGuard(t, st)
		s := guardtest.ServeRecorder(t, guard.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})

		seen := guardtest.Seen(t, guard)
		st.On("forget", guardtest.Always(guardtest.Hang))
		start := time.Now()
		require.Error(t, guard.Forget(t.Context(), guardtest.HeldKey, seen, idempotency.Decision{}))
		require.Less(t, time.Since(start), 10*time.Second)
		st.On("forget", guardtest.Always(guardtest.Refuse))
		require.ErrorIs(t, guard.Forget(t.Context(), guardtest.HeldKey, seen, idempotency.Decision{}), guardtest.ErrDown)
		st.On("forget", nil)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())

		require.NoError(t, guard.Forget(t.Context(), guardtest.HeldKey, seen, idempotency.Decision{}))
		require.False(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

// inspected serves a handler whose status the path tells, on a store that can be
// inspected, under Hold.
func inspected(t *testing.T, opts ...idempotency.Option) (*idempotency.Guard, *guardtest.Server, *guardtest.Counter) {
	t.Helper()
	h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
		if r.URL.Path == "/fails" && run == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
		op, _ := idempotency.FromContext(r.Context())
		_, _ = fmt.Fprintf(w, "%s %d", op.ID(), op.Attempt())
	}}
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), append([]idempotency.Option{idempotency.WithRecovery(idempotency.Hold)}, opts...)...)
	return g, guardtest.ServeRecorder(t, g.Handler(h)), h
}

// An operator with a tool of their own sees what retries get, and somebody hears of it.
func TestAnswer(t *testing.T) {
	seen := &guardtest.Events{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(seen.Observe))
	s := route(t, guard, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "charged")
	})
	_, _, _, err := guard.Answer(t.Context(), guardtest.HeldKey, "ada")
	require.ErrorIs(t, err, idempotency.ErrNotFound)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	status, header, body, err := guard.Answer(t.Context(), guardtest.HeldKey, "ada")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status)
	require.Equal(t, "/charges/1", header.Get("Location"))
	require.Equal(t, "charged", string(body))
	require.Equal(t, 1, seen.Count(event.AnswerRead))
}

func TestLookup(t *testing.T) {
	for name, opts := range map[string][]idempotency.Option{
		"plain": nil, "sealed": {idempotency.WithSealer(guardtest.NewSealer(t, 1))},
	} {
		guardtest.Bubble(t, name, func(t *testing.T) {
			g, s, _ := inspected(t, opts...)
			_, err := g.Lookup(t.Context(), guardtest.HeldKey)
			require.ErrorIs(t, err, idempotency.ErrNotFound)

			created := s.Do(t, guardtest.Call{Key: "k"})
			time.Sleep(time.Hour)
			info := guardtest.Lookup(t, g, guardtest.HeldKey)
			require.Equal(t, store.Completed, info.State)
			require.Equal(t, http.StatusCreated, info.Status)
			require.Equal(t, 1, info.Attempt)
			require.Equal(t, created.Body, info.ID+" 1")
			require.Equal(t, time.Hour, info.Age)
			require.Equal(t, 23*time.Hour, info.TTL)

			_, err = g.Lookup(t.Context(), idempotency.Key{Scope: "other", Value: "k"})
			require.ErrorIs(t, err, idempotency.ErrNotFound)
		})
	}
}

func TestResolveWithAnAnswer(t *testing.T) {
	for name, opts := range map[string][]idempotency.Option{
		"plain": nil, "sealed": {idempotency.WithSealer(guardtest.NewSealer(t, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			g, s, h := inspected(t, opts...)
			c := guardtest.Call{Key: "k", Path: "/fails"}
			s.Do(t, c)
			guardtest.RequireFate(t, s, h, c, guardtest.IsHeld)
			info := guardtest.Lookup(t, g, guardtest.HeldKey)
			require.Equal(t, store.Held, info.State)

			resolution := idempotency.Resolution{
				Outcome: idempotency.Final,
				Status:  http.StatusAccepted, Body: []byte("settled"),
				Header: http.Header{"Location": {"/charges/1"}, "Set-Cookie": {"secret"}, "Idempotency-Key": {"another"}},
			}
			mediaType := "text/plain; charset=utf-8" // what the body looks like
			if name == "sealed" {
				mediaType = "text/html"
				resolution.Header["content-type"] = []string{mediaType}
			}
			for range 10 { // repeating it is success
				require.NoError(t, g.Resolve(t.Context(), guardtest.HeldKey, info.Seen(), resolution))
			}
			got := s.Do(t, c)
			require.True(t, got.Replayed())
			require.Equal(t, http.StatusAccepted, got.Status)
			require.Equal(t, "settled", got.Body)
			require.Equal(t, "/charges/1", got.Header.Get("Location"))
			require.Equal(t, []string{mediaType}, got.Header.Values("Content-Type"))
			require.Empty(t, got.Header.Get("Set-Cookie"))
			require.Equal(t, []string{"k"}, got.Header.Values("Idempotency-Key"))
			require.EqualValues(t, 1, h.Runs.Load())
			require.Equal(t, []string{"/charges/1"}, resolution.Header["Location"], "the caller's header was changed")
			require.NotContains(t, resolution.Header, "Content-Type")
		})
	}
}

func TestResolveRefusesWhatItCannotSettle(t *testing.T) {
	g, s, h := inspected(t, idempotency.WithLimits(idempotency.Limits{ResponseBody: 100}))
	final := idempotency.Resolution{Outcome: idempotency.Final}
	require.ErrorIs(t, g.Resolve(t.Context(), guardtest.HeldKey, guardtest.HeldBy(store.Owner{1}, 1), final), idempotency.ErrNotFound)

	c := guardtest.Call{Key: "k", Path: "/fails"}
	s.Do(t, c)
	seen := guardtest.Seen(t, g)
	for name, resolution := range map[string]idempotency.Resolution{
		"no outcome":          {},
		"unknown":             {Outcome: idempotency.Unknown},
		"informational":       {Outcome: idempotency.Final, Status: http.StatusEarlyHints},
		"no status":           {Outcome: idempotency.Final, Status: 1000},
		"body too large":      {Outcome: idempotency.Final, Body: make([]byte, 101)},
		"header too large":    {Outcome: idempotency.Final, Header: http.Header{"X-Large": {strings.Repeat("x", 64<<10)}}},
		"no field name":       {Outcome: idempotency.Final, Header: http.Header{"X\r\nY": {"1"}}},
		"empty field name":    {Outcome: idempotency.Final, Header: http.Header{"": {"1"}}},
		"a refusal":           {Outcome: idempotency.Final, Header: http.Header{"idempotency-error": {"in-flight"}}},
		"two spellings":       {Outcome: idempotency.Final, Header: http.Header{"x-y": {"1"}, "X-Y": {"2"}}},
		"two lines in one":    {Outcome: idempotency.Final, Header: http.Header{"X-Y": {"1\r\nZ: 2"}}},
		"answer of nothing":   {Outcome: idempotency.NotExecuted, Status: http.StatusConflict},
		"body of nothing":     {Outcome: idempotency.NotExecuted, Body: []byte("x")},
		"answer to go on":     {Outcome: idempotency.Resume, Status: http.StatusOK},
		"header to go on":     {Outcome: idempotency.Resume, Header: http.Header{"X-Y": {"1"}}},
		"body with no status": {Outcome: idempotency.Final, Status: http.StatusNoContent, Body: []byte("x")},
	} {
		require.Error(t, g.Resolve(t.Context(), guardtest.HeldKey, seen, resolution), name)
	}
	for name, other := range map[string]store.Seen{
		"attempt": guardtest.HeldBy(seen.Owner, 2), "owner": guardtest.HeldBy(store.Owner{1}, 1), "nothing": {},
	} {
		require.ErrorIs(t, g.Resolve(t.Context(), guardtest.HeldKey, other, final), idempotency.ErrChanged, name)
	}
	guardtest.RequireFate(t, s, h, c, guardtest.IsHeld)

	done := guardtest.Call{Key: "done"}
	s.Do(t, done)
	key := idempotency.Key{Scope: "acme", Value: "done"}
	info := guardtest.Lookup(t, g, key)
	err := g.Resolve(t.Context(), key, guardtest.HeldBy(info.Seen().Owner, 1), idempotency.Resolution{Outcome: idempotency.NotExecuted})
	require.ErrorIs(t, err, idempotency.ErrChanged)
	guardtest.RequireFate(t, s, h, done, guardtest.Replays)
}

func TestForgetLeavesARunInFlightAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLease(guardtest.LeaseTime))
		h := guardtest.Answering(time.Minute, "done")
		s := guardtest.ServeRecorder(t, g.Handler(h))
		done := s.Start(t, guardtest.Call{Key: "k"})
		for range 50 {
			info := guardtest.Lookup(t, g, guardtest.HeldKey)
			require.ErrorIs(t, g.Forget(t.Context(), guardtest.HeldKey, info.Seen(), idempotency.Decision{}), idempotency.ErrChanged)
			require.Equal(t, store.Claimed, info.State)
			require.Positive(t, info.Lease)
			time.Sleep(time.Second)
		}
		require.Equal(t, "done", (<-done).Body)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}

// A held key is resolved while clients retry: each gets either the state before or the
// one after, and all see the same answer. Of several resolutions one counts.
func TestResolveAgainstConcurrentRetries(t *testing.T) {
	for range 50 {
		g, s, h := inspected(t)
		c := guardtest.Call{Key: "k", Path: "/fails"}
		s.Do(t, c)
		seen := guardtest.Seen(t, g)
		var wg sync.WaitGroup
		var mu sync.Mutex
		bodies := map[string]bool{}
		for i := range 4 {
			wg.Go(func() {
				got, err := s.Try(context.Background(), c)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if got.Replayed() {
					bodies[got.Body] = true
				} else if got.Problem.Code != problem.OutcomeUnknown {
					t.Errorf("got %d %s", got.Status, got.Body)
				}
			})
			wg.Go(func() {
				_ = g.Resolve(t.Context(), guardtest.HeldKey, seen, idempotency.Resolution{
					Outcome: idempotency.Final, Body: fmt.Appendf(nil, "resolution %d", i),
				})
			})
		}
		wg.Wait()
		bodies[s.Do(t, c).Body] = true
		require.Len(t, bodies, 1)
		require.EqualValues(t, 1, h.Runs.Load())
	}
}
