package idempotency_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

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

var inspectedKey = idempotency.Key{Scope: "acme", Value: "k"}

func TestLookup(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.Option{
		"plain": nil, "sealed": {idempotency.WithSealer(guardtest.NewSealer(t, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, s, _ := inspected(t, opts...)
				_, err := g.Lookup(t.Context(), inspectedKey)
				require.ErrorIs(t, err, idempotency.ErrNotFound)

				created := s.Do(t, guardtest.Call{Key: "k"})
				time.Sleep(time.Hour)
				info, err := g.Lookup(t.Context(), inspectedKey)
				require.NoError(t, err)
				require.Equal(t, idempotency.StateCompleted, info.State)
				require.Equal(t, http.StatusCreated, info.Status)
				require.Equal(t, 1, info.Attempt)
				require.Equal(t, created.Body, info.ID+" 1")
				require.Equal(t, time.Hour, info.Age)
				require.Equal(t, 23*time.Hour, info.TTL)

				_, err = g.Lookup(t.Context(), idempotency.Key{Scope: "other", Value: "k"})
				require.ErrorIs(t, err, idempotency.ErrNotFound)
			})
		})
	}
}

func TestLookupOfASharedScope(t *testing.T) {
	t.Parallel()
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(t, err)
	s := guardtest.ServeRecorder(t, g.Handler(&guardtest.Counter{}))
	s.Do(t, guardtest.Call{Key: "k"})
	info, err := g.Lookup(t.Context(), idempotency.Key{Scope: idempotency.Shared, Value: "k"})
	require.NoError(t, err)
	require.Equal(t, idempotency.StateCompleted, info.State)
}

func TestResolveWithAnAnswer(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.Option{
		"plain": nil, "sealed": {idempotency.WithSealer(guardtest.NewSealer(t, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, s, h := inspected(t, opts...)
			c := guardtest.Call{Key: "k", Path: "/fails"}
			s.Do(t, c)
			guardtest.RequireFate(t, s, h, c, guardtest.IsHeld)
			info, err := g.Lookup(t.Context(), inspectedKey)
			require.NoError(t, err)
			require.Equal(t, idempotency.StateHeld, info.State)

			resolution := idempotency.Resolution{
				Outcome: idempotency.Final, Attempt: info.Attempt,
				Status: http.StatusAccepted, Header: http.Header{"Location": {"/charges/1"}, "Set-Cookie": {"secret"}}, Body: []byte("settled"),
			}
			for range 10 { // repeating it is success
				require.NoError(t, g.Resolve(t.Context(), inspectedKey, resolution))
			}
			got := s.Do(t, c)
			require.True(t, got.Replayed())
			require.Equal(t, http.StatusAccepted, got.Status)
			require.Equal(t, "settled", got.Body)
			require.Equal(t, "/charges/1", got.Header.Get("Location"))
			require.Equal(t, "text/plain; charset=utf-8", got.Header.Get("Content-Type"))
			require.Empty(t, got.Header.Get("Set-Cookie"))
			require.EqualValues(t, 1, h.Runs.Load())
			require.Equal(t, []string{"/charges/1"}, resolution.Header["Location"], "the caller's header was changed")
			require.NotContains(t, resolution.Header, "Content-Type")
		})
	}
}

func TestResolveAsNotExecuted(t *testing.T) {
	t.Parallel()
	g, s, h := inspected(t)
	c := guardtest.Call{Key: "k", Path: "/fails"}
	s.Do(t, c)
	require.NoError(t, g.Resolve(t.Context(), inspectedKey, idempotency.Resolution{Outcome: idempotency.NotExecuted}))
	got := s.Do(t, c)
	require.Equal(t, http.StatusCreated, got.Status)
	require.Contains(t, got.Body, " 2")
	require.EqualValues(t, 2, h.Runs.Load())
}

func TestResolveRefusesWhatItCannotSettle(t *testing.T) {
	t.Parallel()
	g, s, h := inspected(t, idempotency.WithMaxResponseBody(100))
	final := idempotency.Resolution{Outcome: idempotency.Final}
	require.ErrorIs(t, g.Resolve(t.Context(), inspectedKey, final), idempotency.ErrNotFound)

	c := guardtest.Call{Key: "k", Path: "/fails"}
	s.Do(t, c)
	for name, resolution := range map[string]idempotency.Resolution{
		"no outcome":          {},
		"unknown":             {Outcome: idempotency.Unknown},
		"informational":       {Outcome: idempotency.Final, Status: http.StatusEarlyHints},
		"no status":           {Outcome: idempotency.Final, Status: 1000},
		"body too large":      {Outcome: idempotency.Final, Body: make([]byte, 101)},
		"body with no status": {Outcome: idempotency.Final, Status: http.StatusNoContent, Body: []byte("x")},
	} {
		require.Error(t, g.Resolve(t.Context(), inspectedKey, resolution), name)
	}
	final.Attempt = 2
	require.ErrorIs(t, g.Resolve(t.Context(), inspectedKey, final), idempotency.ErrChanged)
	guardtest.RequireFate(t, s, h, c, guardtest.IsHeld)

	done := guardtest.Call{Key: "done"}
	s.Do(t, done)
	err := g.Resolve(t.Context(), idempotency.Key{Scope: "acme", Value: "done"}, idempotency.Resolution{Outcome: idempotency.NotExecuted})
	require.ErrorIs(t, err, idempotency.ErrChanged)
	guardtest.RequireFate(t, s, h, done, guardtest.Replays)
}

func TestForget(t *testing.T) {
	t.Parallel()
	g, s, h := inspected(t)
	require.NoError(t, g.Forget(t.Context(), inspectedKey), "forgetting what is not known")
	s.Do(t, guardtest.Call{Key: "k"})
	require.NoError(t, g.Forget(t.Context(), inspectedKey))
	_, err := g.Lookup(t.Context(), inspectedKey)
	require.ErrorIs(t, err, idempotency.ErrNotFound)
	require.False(t, s.Do(t, guardtest.Call{Key: "k", Body: "another payload"}).Replayed())
	require.EqualValues(t, 2, h.Runs.Load())
}

func TestForgetLeavesARunInFlightAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLease(guardtest.LeaseTime))
		h := guardtest.Answering(time.Minute, "done")
		s := guardtest.ServeRecorder(t, g.Handler(h))
		done := s.Start(t, guardtest.Call{Key: "k"})
		for range 50 {
			require.ErrorIs(t, g.Forget(t.Context(), inspectedKey), idempotency.ErrChanged)
			info, err := g.Lookup(t.Context(), inspectedKey)
			require.NoError(t, err)
			require.Equal(t, idempotency.StateClaimed, info.State)
			require.Positive(t, info.Lease)
			time.Sleep(time.Second)
		}
		require.Equal(t, "done", (<-done).Body)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
	})
}

func TestStoreThatCannotBeInspected(t *testing.T) {
	t.Parallel()
	g := guardtest.NewGuard(t, &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()})
	_, err := g.Lookup(t.Context(), inspectedKey)
	require.ErrorIs(t, err, idempotency.ErrNoInspector)
	require.ErrorIs(t, g.Forget(t.Context(), inspectedKey), idempotency.ErrNoInspector)
	require.ErrorIs(t, g.Resolve(t.Context(), inspectedKey, idempotency.Resolution{Outcome: idempotency.NotExecuted}), idempotency.ErrNoInspector)
}

// A held key is resolved while clients retry: each gets either the state before or the
// one after, and all see the same answer. Of several resolutions one counts.
func TestResolveAgainstConcurrentRetries(t *testing.T) {
	t.Parallel()
	for range 50 {
		g, s, h := inspected(t)
		c := guardtest.Call{Key: "k", Path: "/fails"}
		s.Do(t, c)
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
				_ = g.Resolve(t.Context(), inspectedKey, idempotency.Resolution{
					Outcome: idempotency.Final, Attempt: 1, Body: fmt.Appendf(nil, "resolution %d", i),
				})
			})
		}
		wg.Wait()
		bodies[s.Do(t, c).Body] = true
		require.Len(t, bodies, 1)
		require.EqualValues(t, 1, h.Runs.Load())
	}
}

// A retry that was let in by a resolution is not settled by a second one that was meant
// for the run before it.
func TestResolutionIsForOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			if run == 1 {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			<-leave
			_, _ = io.WriteString(w, "second")
		}}
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold))
		s := guardtest.ServeRecorder(t, g.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		require.NoError(t, g.Resolve(t.Context(), inspectedKey, idempotency.Resolution{Outcome: idempotency.NotExecuted, Attempt: 1}))
		done := s.Start(t, guardtest.Call{Key: "k"})
		for _, attempt := range []int{0, 1} {
			err := g.Resolve(t.Context(), inspectedKey, idempotency.Resolution{Outcome: idempotency.Final, Attempt: attempt, Body: []byte("made up")})
			require.ErrorIs(t, err, idempotency.ErrChanged)
		}
		close(leave)
		require.Equal(t, "second", (<-done).Body)
		require.Equal(t, "second", s.Do(t, guardtest.Call{Key: "k"}).Body)
	})
}
