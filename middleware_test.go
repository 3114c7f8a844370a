package idempotency_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

func TestMain(m *testing.M) {
	redistest.AtOnce(4)
	os.Exit(guardtest.Main(m))
}

// Each test of this file is a row of the table of what a request gets, on every
// transport.

func TestMethodThatIsNotProtectedPassesThrough(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		st := idempotency.NewMemoryStore()
		h := &guardtest.Counter{}
		s := serve(guardtest.NewGuard(t, st).Handler(h))
		for range 2 {
			got := s.Do(t, guardtest.Call{Method: http.MethodPut, Key: "k"})
			require.Equal(t, http.StatusCreated, got.Status)
			require.False(t, got.Replayed())
			require.Empty(t, got.Header.Get("Idempotency-Key"))
		}
		require.EqualValues(t, 2, h.Runs.Load())
		require.Zero(t, st.Len())
	})
}

func TestRequestWithoutKeyPassesThrough(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		st := idempotency.NewMemoryStore()
		h := &guardtest.Counter{}
		s := serve(guardtest.NewGuard(t, st).Handler(h))
		require.False(t, s.Do(t, guardtest.Call{}).Replayed())
		require.False(t, s.Do(t, guardtest.Call{}).Replayed())
		require.EqualValues(t, 2, h.Runs.Load())
		require.Zero(t, st.Len())
	})
}

// touchesNothing checks on each transport that the requests of f run nothing, and leave nothing in the store.
func touchesNothing(t *testing.T, f func(t *testing.T, s *guardtest.Server), opts ...idempotency.Option) {
	t.Helper()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		st, h := idempotency.NewMemoryStore(), &guardtest.Counter{}
		f(t, serve(guardtest.NewGuard(t, st, opts...).Handler(h)))
		require.Zero(t, h.Runs.Load())
		require.Zero(t, st.Len())
	})
}

func TestRequiredKeyIsMissing(t *testing.T) {
	touchesNothing(t, func(t *testing.T, s *guardtest.Server) {
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{}), http.StatusBadRequest, problem.KeyMissing)
	}, idempotency.WithRequired(true))
}

func TestMalformedKeyTouchesNothing(t *testing.T) {
	touchesNothing(t, func(t *testing.T, s *guardtest.Server) {
		for name, values := range map[string][]string{
			"empty":          {""},
			"two lines":      {"a", "a"},
			"list":           {"a, b"},
			"too long":       {strings.Repeat("k", 256)},
			"open string":    {`"abc`},
			"not ASCII":      {"schlüssel"},
			"blank inside":   {"a b"},
			"quoted empty":   {`""`},
			"bad parameters": {`"abc";`},
		} {
			got := s.Do(t, guardtest.Call{Header: http.Header{"Idempotency-Key": values}})
			require.Equal(t, problem.KeyInvalid, got.Problem.Code, "%s: %d %s", name, got.Status, got.Body)
			guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.KeyInvalid)
			require.NotEmpty(t, got.Problem.Detail)
		}
	})
}

func TestBodyOverTheLimitTouchesNothing(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		st := idempotency.NewMemoryStore()
		h := &guardtest.Counter{}
		requireBodyLimit(t, serve(guardtest.NewGuard(t, st, idempotency.WithLimits(idempotency.Limits{RequestBody: 16})).Handler(h)), st, h, 16)
	})
}

func TestScopeThatCannotBeToldTouchesNothing(t *testing.T) {
	touchesNothing(t, func(t *testing.T, s *guardtest.Server) {
		for _, tenant := range []string{"unknown", "empty"} {
			got := s.Do(t, guardtest.Call{Key: "k", Tenant: tenant})
			guardtest.RequireProblem(t, got, http.StatusForbidden, problem.ScopeUnresolved)
		}
	})
}

func TestDuplicateGetsTheFirstAnswer(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status)
		require.False(t, first.Replayed())
		require.Equal(t, "k", first.Header.Get("Idempotency-Key"))
		for range 3 {
			again := s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, again.Replayed())
			require.Equal(t, first.Status, again.Status)
			require.Equal(t, first.Body, again.Body)
			guardtest.RequireSameHeader(t, first.Header, again.Header)
		}
		// The structured-field form names the same key.
		require.True(t, s.Do(t, guardtest.Call{Key: `"k"`}).Replayed())
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A client that has seen the first byte of an answer can rely on the rest of it.
func TestAnswerIsRecordedBeforeItIsShown(t *testing.T) {
	g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
	guarded := g.Handler(&guardtest.Counter{})
	w := &beforeShown{ResponseWriter: httptest.NewRecorder(), check: func() {
		info := guardtest.Lookup(t, g, idempotency.Key{Scope: "acme", Value: "k"})
		require.Equal(t, store.Completed, info.State)
	}}
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(guardtest.DefaultBody))
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

func TestOtherPayloadIsRefusedInAnyState(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		entered, leave := make(chan struct{}), make(chan struct{})
		h := &guardtest.Counter{}
		h.Handler = func(w http.ResponseWriter, r *http.Request, _ int64) {
			switch r.Header.Get("X-Do") {
			case "wait":
				close(entered)
				<-leave
			case "fail":
				w.WriteHeader(http.StatusInternalServerError)
			}
		}
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		mux.Handle("/charges", g.Handler(h))
		mux.Handle("/refunds", g.With(idempotency.WithMismatchStatus(http.StatusUnprocessableEntity)).Handler(h))
		mux.Handle("/payouts", g.With(idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		s := serve(mux)

		refused := func(key, path string, status int) {
			t.Helper()
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: key, Path: path, Body: `{"amount":200}`}), status, problem.KeyReused)
		}

		s.Do(t, guardtest.Call{Key: "completed"})
		refused("completed", "/charges", http.StatusConflict)
		refused("completed", "/refunds", http.StatusUnprocessableEntity)

		s.Do(t, guardtest.Call{Key: "released", Header: http.Header{"X-Do": {"fail"}}})
		refused("released", "/charges", http.StatusConflict)

		s.Do(t, guardtest.Call{Key: "held", Path: "/payouts", Header: http.Header{"X-Do": {"fail"}}})
		refused("held", "/payouts", http.StatusConflict)

		done := make(chan guardtest.Reply, 1)
		go func() {
			got, _ := s.Try(t.Context(), guardtest.Call{Key: "in flight", Header: http.Header{"X-Do": {"wait"}, "Idempotency-Key": {`"in flight"`}}})
			done <- got
		}()
		<-entered
		refused(`"in flight"`, "/charges", http.StatusConflict)
		// The same payload on another path is another request.
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "completed", Path: "/payouts"}), http.StatusConflict, problem.KeyReused)
		close(leave)
		require.Equal(t, http.StatusOK, (<-done).Status)
		require.EqualValues(t, 4, h.Runs.Load())
	})
}

func TestDuplicateInFlightIsRefusedAtOnce(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h, s, first, leave := slowServer(t, serve)
		got := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, got, http.StatusConflict, problem.InFlight)
		require.Equal(t, "1", got.Header.Get("Retry-After"))
		close(leave)
		require.Equal(t, "done", (<-first).Body)
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, "done", again.Body)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

func TestDuplicateInFlightWaitsAndReplays(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		const duplicates = 20
		h, s, first, leave := slowServer(t, serve, idempotency.WithWait(time.Minute))
		replies := make(chan guardtest.Reply, duplicates)
		for range duplicates {
			go func() {
				got, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
				if err != nil {
					got.Body = err.Error()
				}
				replies <- got
			}()
		}
		close(leave)
		require.Equal(t, "done", (<-first).Body)
		for range duplicates {
			got := <-replies
			require.Equal(t, "done", got.Body)
			require.True(t, got.Replayed())
		}
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

func TestWaitIsOverBeforeTheRun(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		_, s, first, leave := slowServer(t, serve, idempotency.WithWait(time.Millisecond))
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
		close(leave)
		<-first
	})
}

// slowServer serves a handler that is in the middle of a run with key "k", which ends
// when leave is closed.
func slowServer(t *testing.T, serve func(http.Handler) *guardtest.Server, opts ...idempotency.Option) (
	h *guardtest.Counter, s *guardtest.Server, first <-chan guardtest.Reply, leave chan struct{},
) {
	t.Helper()
	entered := make(chan struct{})
	leave = make(chan struct{})
	h = &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
		close(entered)
		<-leave
		_, _ = io.WriteString(w, "done")
	}}
	s = serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(h))
	replies := make(chan guardtest.Reply, 1)
	go func() {
		got, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
		if err != nil {
			got.Body = err.Error()
		}
		replies <- got
	}()
	<-entered
	return h, s, replies, leave
}

func TestHeldKeyIsNotRunAgain(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.WriteHeader(http.StatusBadGateway)
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		require.Equal(t, http.StatusBadGateway, s.Do(t, guardtest.Call{Key: "k"}).Status)
		for range 2 {
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
		}
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

func TestUnknownOutcomeRunsAgainAsTheNextAttempt(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		var attempts []int
		var ids []string
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
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
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, http.StatusOK, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
		require.Equal(t, []int{1, 2, 3}, attempts)
		require.Equal(t, ids[0], ids[1])
		require.Equal(t, ids[1], ids[2])
		require.Len(t, ids[0], 32)
	})
}

func TestAnswerTooLargeToKeepIsSentButNotRunAgain(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		large := strings.Repeat("0123456789", 10)
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Location", "/charges/7")
			w.WriteHeader(http.StatusCreated)
			for i := 0; i < len(large); i += 7 {
				_, _ = io.WriteString(w, large[i:min(i+7, len(large))])
			}
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithLimits(idempotency.Limits{ResponseBody: 99})).Handler(h))
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status)
		require.Equal(t, large, first.Body)
		got := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
		require.Equal(t, http.StatusCreated, got.Problem.OriginalStatus)
		require.Equal(t, "/charges/7", got.Problem.OriginalLocation)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// The limit is that of the body: one of exactly that many bytes is kept, with its header and trailer.
func TestBodyOfTheLimitIsKept(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		body := strings.Repeat("x", 1<<20) // the default
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.Header().Set("Location", "/charges/7")
			_, _ = io.WriteString(w, body)
			w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
			if r.URL.Path == "/one-more" {
				_, _ = io.WriteString(w, "x")
			}
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Len(t, first.Body, len(body))
		again := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireReplay(t, first, again)
		require.Equal(t, "1", again.Trailer.Get("X-Sum"))

		c := guardtest.Call{Key: "more", Path: "/one-more"}
		require.Len(t, s.Do(t, c).Body, len(body)+1)
		guardtest.RequireProblem(t, s.Do(t, c), http.StatusConflict, problem.ResponseNotKept)
	})
}

// A Location that the route leaves out of the record reaches nobody but the client of the run, be the
// answer too large to keep, or shorter than it was declared.
func TestUnrecordedLocationIsNotTold(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.Header().Set("Location", "/signed?token=secret")
			if r.URL.Path == "/short" {
				w.Header().Set("Content-Length", "10")
				guardtest.Op(r.Context()).SetOutcome(idempotency.Final)
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "1234")
			if r.URL.Path == "/streamed" {
				_ = http.NewResponseController(w).Flush()
			}
			if r.URL.Path != "/short" {
				_, _ = io.WriteString(w, strings.Repeat("x", 100))
			}
		}}
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithUnrecorded("Location"), idempotency.WithLimits(idempotency.Limits{ResponseBody: 99}))
		s := serve(guard.Handler(h))
		for i, path := range []string{"/large", "/streamed", "/short"} {
			c := guardtest.Call{Key: path, Path: path}
			first, err := s.Try(t.Context(), c)
			if path != "/short" { // which may end with its connection
				require.NoError(t, err)
				require.Equal(t, "/signed?token=secret", first.Header.Get("Location"))
			}
			again := s.Do(t, c)
			guardtest.RequireProblem(t, again, http.StatusConflict, problem.ResponseNotKept)
			require.Equal(t, http.StatusCreated, again.Problem.OriginalStatus)
			require.Empty(t, again.Problem.OriginalLocation)
			require.NotContains(t, again.Body, "secret")
			require.NotContains(t, fmt.Sprint(again.Header), "secret")
			require.EqualValues(t, i+1, h.Runs.Load())
		}
	})
}

func TestTenantsDoNotMeet(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, "for "+r.Header.Get("X-Tenant"))
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		for range 2 {
			require.Equal(t, "for alice", s.Do(t, guardtest.Call{Key: "k", Tenant: "alice"}).Body)
			require.Equal(t, "for bob", s.Do(t, guardtest.Call{Key: "k", Tenant: "bob"}).Body)
		}
		require.EqualValues(t, 2, h.Runs.Load())
	})
}

func TestHandlerReadsWhatWasFingerprinted(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			body, err := io.ReadAll(r.Body)
			if err != nil || int64(len(body)) != r.ContentLength {
				t.Errorf("read %d bytes of %d: %v", len(body), r.ContentLength, err)
			}
			_, _ = w.Write(body)
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		require.Equal(t, "hello", s.Do(t, guardtest.Call{Key: "a", Body: "hello"}).Body)

		r := s.Request(t.Context(), guardtest.Call{Key: "b"})
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(make([]byte, 100_000))), -1
		resp, err := s.Client.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, make([]byte, 100_000), body)
	})
}
