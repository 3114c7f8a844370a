package idempotency_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// Each test of this file is a row of the table of what a request gets, on every
// transport.

func TestMethodThatIsNotProtectedPassesThrough(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{}
		s := serve(newGuard(t, store).Handler(h))
		for range 2 {
			got := s.do(t, call{method: http.MethodPut, key: "k"})
			require.Equal(t, http.StatusCreated, got.status)
			require.False(t, got.replayed())
			require.Empty(t, got.header.Get("Idempotency-Key"))
		}
		require.EqualValues(t, 2, h.runs.Load())
		require.Zero(t, store.Len())
	})
}

func TestRequestWithoutKeyPassesThrough(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{}
		s := serve(newGuard(t, store).Handler(h))
		require.False(t, s.do(t, call{}).replayed())
		require.False(t, s.do(t, call{}).replayed())
		require.EqualValues(t, 2, h.runs.Load())
		require.Zero(t, store.Len())
	})
}

func TestRequiredKeyIsMissing(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{}
		s := serve(newGuard(t, store, idempotency.WithRequired(true)).Handler(h))
		requireProblem(t, s.do(t, call{}), http.StatusBadRequest, problem.KeyMissing)
		require.Zero(t, h.runs.Load())
		require.Zero(t, store.Len())
	})
}

func TestMalformedKeyTouchesNothing(t *testing.T) {
	t.Parallel()
	keys := map[string][]string{
		"empty":          {""},
		"two lines":      {"a", "a"},
		"list":           {"a, b"},
		"too long":       {strings.Repeat("k", 256)},
		"open string":    {`"abc`},
		"not ASCII":      {"schlüssel"},
		"blank inside":   {"a b"},
		"quoted empty":   {`""`},
		"bad parameters": {`"abc";`},
	}
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{}
		s := serve(newGuard(t, store).Handler(h))
		for name, values := range keys {
			got := s.do(t, call{header: http.Header{"Idempotency-Key": values}})
			require.Equal(t, problem.KeyInvalid, got.problem.Code, "%s: %d %s", name, got.status, got.body)
			requireProblem(t, got, http.StatusBadRequest, problem.KeyInvalid)
			require.NotEmpty(t, got.problem.Detail)
		}
		require.Zero(t, h.runs.Load())
		require.Zero(t, store.Len())
	})
}

func TestBodyOverTheLimitTouchesNothing(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{}
		requireBodyLimit(t, serve(newGuard(t, store, idempotency.WithMaxRequestBody(16)).Handler(h)), store, h, 16)
	})
}

func TestScopeThatCannotBeToldTouchesNothing(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{}
		s := serve(newGuard(t, store).Handler(h))
		for _, tenant := range []string{"unknown", "empty"} {
			got := s.do(t, call{key: "k", tenant: tenant})
			requireProblem(t, got, http.StatusForbidden, problem.ScopeUnresolved)
		}
		require.Zero(t, h.runs.Load())
		require.Zero(t, store.Len())
	})
}

func TestDuplicateGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		first := s.do(t, call{key: "k"})
		require.Equal(t, http.StatusCreated, first.status)
		require.False(t, first.replayed())
		require.Equal(t, "k", first.header.Get("Idempotency-Key"))
		for range 3 {
			again := s.do(t, call{key: "k"})
			require.True(t, again.replayed())
			require.Equal(t, first.status, again.status)
			require.Equal(t, first.body, again.body)
			requireSameHeader(t, first.header, again.header)
		}
		// The structured-field form names the same key.
		require.True(t, s.do(t, call{key: `"k"`}).replayed())
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// A client that has seen the first byte of an answer can rely on the rest of it.
func TestAnswerIsRecordedBeforeItIsShown(t *testing.T) {
	t.Parallel()
	g := newGuard(t, idempotency.NewMemoryStore())
	guarded := g.Handler(&counter{})
	w := &beforeShown{ResponseWriter: httptest.NewRecorder(), check: func() {
		info, err := g.Lookup(t.Context(), idempotency.Key{Scope: "acme", Value: "k"})
		require.NoError(t, err)
		require.Equal(t, idempotency.StateCompleted, info.State)
	}}
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(defaultBody))
	r.Header.Set("Idempotency-Key", "k")
	guarded.ServeHTTP(w, r)
	require.Equal(t, 2, w.shown, "status and body")
}

// A beforeShown calls check before anything reaches the client.
type beforeShown struct {
	http.ResponseWriter
	check func()
	shown int
}

func (w *beforeShown) WriteHeader(status int) {
	w.check()
	w.shown++
	w.ResponseWriter.WriteHeader(status)
}

func (w *beforeShown) Write(b []byte) (int, error) {
	w.check()
	w.shown++
	return w.ResponseWriter.Write(b)
}

// requireSameHeader compares all fields but those that are made anew for each answer.
func requireSameHeader(t testing.TB, first, again http.Header) {
	t.Helper()
	first, again = first.Clone(), again.Clone()
	for _, name := range []string{"Date", "Idempotent-Replayed"} {
		first.Del(name)
		again.Del(name)
	}
	require.Equal(t, first, again)
}

func TestOtherPayloadIsRefusedInAnyState(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		entered, leave := make(chan struct{}), make(chan struct{})
		h := &counter{}
		h.handler = func(w http.ResponseWriter, r *http.Request, _ int64) {
			switch r.Header.Get("X-Do") {
			case "wait":
				close(entered)
				<-leave
			case "fail":
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		g := newGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		mux.Handle("/charges", g.Handler(h))
		mux.Handle("/refunds", g.With(idempotency.WithMismatchStatus(http.StatusUnprocessableEntity)).Handler(h))
		mux.Handle("/payouts", g.With(idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		s := serve(mux)

		refused := func(key, path string, status int) {
			t.Helper()
			requireProblem(t, s.do(t, call{key: key, path: path, body: `{"amount":200}`}), status, problem.KeyReused)
		}

		s.do(t, call{key: "completed"})
		refused("completed", "/charges", http.StatusConflict)
		refused("completed", "/refunds", http.StatusUnprocessableEntity)

		s.do(t, call{key: "released", header: http.Header{"X-Do": {"fail"}}})
		refused("released", "/charges", http.StatusConflict)

		s.do(t, call{key: "held", path: "/payouts", header: http.Header{"X-Do": {"fail"}}})
		refused("held", "/payouts", http.StatusConflict)

		done := make(chan reply, 1)
		go func() {
			got, _ := s.try(t.Context(), call{key: "in flight", header: http.Header{"X-Do": {"wait"}, "Idempotency-Key": {`"in flight"`}}})
			done <- got
		}()
		<-entered
		refused(`"in flight"`, "/charges", http.StatusConflict)
		// The same payload on another path is another request.
		requireProblem(t, s.do(t, call{key: "completed", path: "/payouts"}), http.StatusConflict, problem.KeyReused)
		close(leave)
		require.Equal(t, http.StatusOK, (<-done).status)
		require.EqualValues(t, 4, h.runs.Load())
	})
}

func TestDuplicateInFlightIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h, s, first, leave := slowServer(t, serve)
		got := s.do(t, call{key: "k"})
		requireProblem(t, got, http.StatusConflict, problem.InFlight)
		require.Equal(t, "1", got.header.Get("Retry-After"))
		close(leave)
		require.Equal(t, "done", (<-first).body)
		again := s.do(t, call{key: "k"})
		require.True(t, again.replayed())
		require.Equal(t, "done", again.body)
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestDuplicateInFlightWaitsAndReplays(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		const duplicates = 20
		h, s, first, leave := slowServer(t, serve, idempotency.WithWait(time.Minute))
		replies := make(chan reply, duplicates)
		for range duplicates {
			go func() {
				got, err := s.try(t.Context(), call{key: "k"})
				if err != nil {
					got.body = err.Error()
				}
				replies <- got
			}()
		}
		close(leave)
		require.Equal(t, "done", (<-first).body)
		for range duplicates {
			got := <-replies
			require.Equal(t, "done", got.body)
			require.True(t, got.replayed())
		}
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestWaitIsOverBeforeTheRun(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		_, s, first, leave := slowServer(t, serve, idempotency.WithWait(time.Millisecond))
		requireProblem(t, s.do(t, call{key: "k"}), http.StatusConflict, problem.InFlight)
		close(leave)
		<-first
	})
}

// slowServer serves a handler that is in the middle of a run with key "k", which ends
// when leave is closed.
func slowServer(t *testing.T, serve func(http.Handler) *server, opts ...idempotency.Option) (
	h *counter, s *server, first <-chan reply, leave chan struct{},
) {
	t.Helper()
	entered := make(chan struct{})
	leave = make(chan struct{})
	h = &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "done")
	}}
	s = serve(newGuard(t, idempotency.NewMemoryStore(), opts...).Handler(h))
	replies := make(chan reply, 1)
	go func() {
		got, err := s.try(t.Context(), call{key: "k"})
		if err != nil {
			got.body = err.Error()
		}
		replies <- got
	}()
	<-entered
	return h, s, replies, leave
}

func TestHeldKeyIsNotRunAgain(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusBadGateway)
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		require.Equal(t, http.StatusBadGateway, s.do(t, call{key: "k"}).status)
		for range 2 {
			requireProblem(t, s.do(t, call{key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		}
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestUnknownOutcomeRunsAgainAsTheNextAttempt(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		var attempts []int
		var ids []string
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, run int64) {
			op, ok := idempotency.FromContext(r.Context())
			if !ok || !op.Valid() || op.Key() != (idempotency.Key{Scope: "acme", Value: "k"}) {
				t.Errorf("operation of run %d: %v %+v", run, ok, op)
				return
			}
			attempts, ids = append(attempts, op.Attempt()), append(ids, op.ID())
			if run < 3 {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		require.Equal(t, http.StatusInternalServerError, s.do(t, call{key: "k"}).status)
		require.Equal(t, http.StatusInternalServerError, s.do(t, call{key: "k"}).status)
		require.Equal(t, http.StatusOK, s.do(t, call{key: "k"}).status)
		require.True(t, s.do(t, call{key: "k"}).replayed())
		require.Equal(t, []int{1, 2, 3}, attempts)
		require.Equal(t, ids[0], ids[1])
		require.Equal(t, ids[1], ids[2])
		require.Len(t, ids[0], 32)
	})
}

func TestAnswerTooLargeToKeepIsSentButNotRunAgain(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		large := strings.Repeat("0123456789", 10)
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Location", "/charges/7")
			w.WriteHeader(http.StatusCreated)
			for i := 0; i < len(large); i += 7 {
				_, _ = io.WriteString(w, large[i:min(i+7, len(large))])
			}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore(), idempotency.WithMaxResponseBody(99)).Handler(h))
		first := s.do(t, call{key: "k"})
		require.Equal(t, http.StatusCreated, first.status)
		require.Equal(t, large, first.body)
		got := s.do(t, call{key: "k"})
		requireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
		require.Equal(t, http.StatusCreated, got.problem.OriginalStatus)
		require.Equal(t, "/charges/7", got.problem.OriginalLocation)
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestTenantsDoNotMeet(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, "for "+r.Header.Get("X-Tenant"))
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		for range 2 {
			require.Equal(t, "for alice", s.do(t, call{key: "k", tenant: "alice"}).body)
			require.Equal(t, "for bob", s.do(t, call{key: "k", tenant: "bob"}).body)
		}
		require.EqualValues(t, 2, h.runs.Load())
	})
}

func TestHandlerReadsWhatWasFingerprinted(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			body, err := io.ReadAll(r.Body)
			if err != nil || r.ContentLength != int64(len(body)) {
				t.Errorf("read %d bytes of %d: %v", len(body), r.ContentLength, err)
			}
			_, _ = w.Write(body)
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		require.Equal(t, "hello", s.do(t, call{key: "a", body: "hello"}).body)

		r := s.request(t.Context(), call{key: "b"})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, 100_000))), -1
		resp, err := s.client.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 100_000), body)
	})
}

// A guard of all routes and another of one of them: the inner one would find the run of the
// outer one in flight, and the outer one record its 409.
func TestGuardInsideAGuardPanics(t *testing.T) {
	t.Parallel()
	h := &counter{}
	g := newGuard(t, idempotency.NewMemoryStore())
	inner := g.With(idempotency.WithTTL(time.Hour)).Handler(h)
	s := serveRecorder(t, g.Handler(inner))
	require.PanicsWithValue(t, "idempotency: Handler: a guard inside a guard; give a route one guard, made with With for its own settings",
		func() { _, _ = s.try(t.Context(), call{key: "k"}) })
	require.Equal(t, http.StatusCreated, s.do(t, call{}).status, "without a key nothing is guarded")
	require.Equal(t, http.StatusCreated, serveRecorder(t, inner).do(t, call{key: "k"}).status, "it was no answer")
}
