package eventtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// An adapter that hands a framework the writer from outside the guard lets every answer go
// past it. Nobody would know from the record, which is an empty 200.
func TestSilentHandlerIsReportedOncePerRoute(t *testing.T) {
	var events guardtest.Events
	var log guardtest.LockedBuffer
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(),
		idempotency.WithObserver(events.Observe), idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /charges/{id}", "POST /transfers"} {
		mux.Handle(pattern, http.HandlerFunc(func(outer http.ResponseWriter, r *http.Request) {
			framework := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				outer.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(outer, "charged")
			})
			guard.Handler(framework).ServeHTTP(outer, r) // made for each request, as such adapters do
		}))
	}
	s := guardtest.ServeHTTP1(t, mux)
	for _, path := range []string{"/charges/1", "/charges/2", "/transfers"} {
		got := s.Do(t, guardtest.Call{Key: path, Path: path})
		require.Equal(t, http.StatusCreated, got.Status)
		require.Equal(t, "charged", got.Body)
	}
	require.Equal(t, 2, events.Count(event.Silent))
	for _, e := range events.All() {
		if e.Kind == event.Silent {
			require.ErrorContains(t, e.Err, "adapter")
			require.Equal(t, http.MethodPost, e.Method)
			require.NotEmpty(t, e.Route)
		}
	}
	require.Contains(t, log.String(), "POST /charges/{id}")
	require.Contains(t, log.String(), "POST /transfers")
	require.NotContains(t, log.String(), "/charges/1")
}

// An answer that went past the guard is no empty 200, as the header outside shows. It is not
// replayed, and nothing runs again. A field that has nothing to do with an answer shows nothing.
func TestAnswerPastTheGuardIsNotReplayed(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for field, past := range map[string]bool{"Content-Type": true, "Location": true, "Server-Timing": false} {
			var events guardtest.Events
			guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe))
			runs := &guardtest.Counter{}
			s := serve(http.HandlerFunc(func(outer http.ResponseWriter, r *http.Request) {
				outer.Header().Set("X-Outer", "set")
				runs.Handler = func(http.ResponseWriter, *http.Request, int64) {
					outer.Header().Set(field, "/charges/1")
					if past {
						outer.WriteHeader(http.StatusCreated)
					}
				}
				guard.Handler(runs).ServeHTTP(outer, r)
			}))
			first, again := s.Do(t, guardtest.Call{Key: "k"}), s.Do(t, guardtest.Call{Key: "k"})
			require.EqualValues(t, 1, runs.Runs.Load())
			require.Equal(t, 1, events.Count(event.Silent))
			if !past {
				require.Equal(t, http.StatusOK, first.Status)
				require.True(t, again.Replayed())
				continue
			}
			require.Equal(t, http.StatusCreated, first.Status)
			guardtest.RequireProblem(t, again, http.StatusConflict, problem.ResponseNotKept)
			require.Zero(t, again.Problem.OriginalStatus)
			require.ErrorContains(t, events.Errors()[0], "use the module for the framework")
		}
	})
}

// A router inside the guard tells the routes apart, too.
func TestSilentHandlerInsideARouter(t *testing.T) {
	var events guardtest.Events
	mux := http.NewServeMux()
	mux.HandleFunc("POST /quiet", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /quiet/{id}", func(http.ResponseWriter, *http.Request) {})
	s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe)).Handler(mux))
	for _, path := range []string{"/quiet", "/quiet", "/quiet", "/quiet/1", "/quiet/2"} {
		s.Do(t, guardtest.Call{Path: path, Header: http.Header{"Idempotency-Key": {rand.Text()}}})
	}
	require.Equal(t, 2, events.Count(event.Silent))
}

// Where no router names the routes, their paths tell them apart. Clients choose those, so what is
// remembered of them is bounded.
func TestSilentRoutesWithoutAName(t *testing.T) {
	var events guardtest.Events
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe))
	s := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	ask := func(path string) {
		s.Do(t, guardtest.Call{Path: path, Header: http.Header{"Idempotency-Key": {rand.Text()}}})
	}
	for _, path := range []string{"/charges", "/charges/1", "/charges/2", "/charges/" + rand.Text() + "0/refund", "/transfers", "/charges"} {
		ask(path)
	}
	errs := events.Errors()
	require.Len(t, errs, 4)
	for i, shape := range []string{`"/charges"`, `"/charges/*"`, `"/charges/*/refund"`, `"/transfers"`} {
		require.ErrorContains(t, errs[i], shape)
	}
	for a := range 26 {
		for b := range 26 {
			ask("/" + string([]rune{rune('a' + a), rune('a' + b)}))
		}
	}
	require.Len(t, events.Errors(), 64+1, "and one for all others")
}

// The route decides what it means that its handler says nothing.
func TestSilenceMeansWhatTheRouteSays(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			fates := map[idempotency.Outcome]guardtest.Fate{
				0: guardtest.Replays, idempotency.Final: guardtest.Replays,
				idempotency.NotExecuted: guardtest.RunsNext, idempotency.Unknown: unknown,
			}
			for silence, want := range fates {
				var events guardtest.Events
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.Header().Set("X-Field", "set")
				}}
				s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery,
					idempotency.WithSilence(silence), idempotency.WithObserver(events.Observe)).Handler(h))
				first := s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, http.StatusOK, first.Status)
				require.Equal(t, "set", first.Header.Get("X-Field"))
				require.Equal(t, silence != idempotency.Final, events.Count(event.Silent) == 1)
				guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, want)
			}
		})
	})
}

// Where silence is not an answer, the framework outside can still give one.
func TestSilenceLeavesTheAnswerToOuterHandlers(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithSilence(idempotency.Unknown)).
			Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			guarded.ServeHTTP(w, r)
			http.Error(w, "no such account", http.StatusNotFound) // the error that the handler returned
		}))
		require.Equal(t, http.StatusNotFound, s.Do(t, guardtest.Call{Key: "k"}).Status)
	})
}

// A handler that leaves its answer to a goroutine says nothing by the time it returns. The
// route's function is asked after that, so it can wait here for the goroutine.
func TestWriteAfterSilenceIsUnknown(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		var events guardtest.Events
		var writer http.ResponseWriter
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { writer = w }}
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery, idempotency.WithObserver(events.Observe),
			idempotency.WithOutcome(func(status int, h http.Header) idempotency.Outcome {
				_, err := io.WriteString(writer, "charged")
				require.Error(t, err)
				return idempotency.DefaultOutcome(status, h)
			}))
		s := guardtest.ServeRecorder(t, guard.Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, 2, events.Count(event.Silent), "silence, and the write after it")
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
	})
}

// A run that detaches from its context cannot have been stopped by it: its empty answer is
// an answer, and is not run a second time because an outer timeout has passed.
func TestSilenceOfADetachedRunIsAnAnswer(t *testing.T) {
	tooSlow := make(chan struct{})
	h := &guardtest.Counter{Handler: func(_ http.ResponseWriter, r *http.Request, _ int64) {
		<-tooSlow
		_ = context.WithoutCancel(r.Context()).Err()
	}}
	guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)
	s := guardtest.ServeHTTP1(t, http.TimeoutHandler(guarded, time.Millisecond, "too slow"))
	key, got := s.Overrun(t, h, guardtest.Call{})
	require.Equal(t, http.StatusServiceUnavailable, got.Status)
	close(tooSlow) // the deadline has passed by now
	s = guardtest.ServeHTTP1(t, guarded)
	require.Eventually(t, func() bool { return s.Do(t, guardtest.Call{Key: key}).Replayed() }, guardtest.Patience, time.Millisecond)
	require.EqualValues(t, 1, h.RunsOf(key))
}

// chi's Timeout writes 504 after a handler whose deadline has passed. Around a guard it finds
// the answer written; inside, the 504 is the handler's and leaves the outcome open. So does one behind the
// refusal of a handler that was told to stop.
func TestTimeoutThatAnswersAfterTheHandler(t *testing.T) {
	timeout := func(next http.Handler) http.Handler { // as chi's middleware.Timeout does it
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hurry") == "" {
				next.ServeHTTP(w, r)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
			defer func() {
				cancel()
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					w.WriteHeader(http.StatusGatewayTimeout)
				}
			}()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	for name, wrap := range map[string]func(*idempotency.Guard, http.Handler) http.Handler{
		"around": func(g *idempotency.Guard, h http.Handler) http.Handler { return timeout(g.Handler(h)) },
		"inside": func(g *idempotency.Guard, h http.Handler) http.Handler { return g.Handler(timeout(h)) },
	} {
		for _, stopped := range []int{0, http.StatusUnprocessableEntity} {
			t.Run(fmt.Sprint(name, " ", stopped), func(t *testing.T) {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
					if run > 1 {
						w.WriteHeader(http.StatusCreated)
						return
					}
					<-r.Context().Done()
					if stopped != 0 {
						w.WriteHeader(stopped) // which says that nothing was done
					}
				}}
				s := guardtest.ServeHTTP1(t, wrap(guardtest.NewGuard(t, idempotency.NewMemoryStore()), h))
				key, _ := s.Overrun(t, h, guardtest.Call{Header: http.Header{"X-Hurry": {"1"}}})
				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: key}).Status)
				require.True(t, s.Do(t, guardtest.Call{Key: key}).Replayed())
			})
		}
	}
}

// Some protocols tell of a failure in an answer 200. A guard that records it says so, once.
func TestFailureThatAnAnswer200Hides(t *testing.T) {
	const (
		asJSON    = "application/json"
		asGraphQL = "application/graphql-response+json; charset=utf-8"
	)
	for name, test := range map[string]struct {
		mediaType, body string
		hides           bool
	}{
		"JSON-RPC, failed":      {asJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal"}}`, true},
		"JSON-RPC, own code":    {asJSON, ` {"id":1, "error" : {"code":7}, "jsonrpc":"2.0"}`, true},
		"JSON-RPC, in a batch":  {asJSON, `[{"jsonrpc":"2.0","result":1},{"jsonrpc":"2.0","error":{"code":1}}]`, true},
		"JSON-RPC, turned away": {asJSON, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no amount"}}`, false},
		"JSON-RPC, done":        {asJSON, `{"jsonrpc":"2.0","id":1,"result":{"error":null}}`, false},
		"GraphQL, failed":       {asGraphQL, `{"errors":[{"message":"no"}],"data":null}`, true},
		"GraphQL, partly":       {asJSON, `{"data":{"a":1,"b":null},"errors":[{"message":"no","path":["b"]}]}`, true},
		"GraphQL, done":         {asGraphQL, `{"data":{"errors":[{"message":"of the data"}]}}`, false},
		"no errors":             {asJSON, `{"errors":[],"error":null}`, false},
		"errors of the program": {asJSON, `{"errors":["row 7"]}`, false},
		"another type":          {"text/plain", `{"errors":[{"message":"no"}]}`, false},
		"not JSON":              {asJSON, `{"errors":[{"message"`, false},
		"too large":             {asJSON, `{"errors":[{"message":"` + strings.Repeat("x", 64<<10) + `"}]}`, false},
	} {
		var events guardtest.Events
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(),
			idempotency.WithObserver(events.Observe), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
		status := http.StatusOK
		says := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", test.mediaType)
			if r.Header.Get("X-Says") != "" {
				guardtest.Op(r.Context()).SetOutcome(idempotency.Unknown)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, test.body)
		})
		ask := func(g *idempotency.Guard, header http.Header) {
			header.Set("Idempotency-Key", rand.Text())
			guardtest.ServeRecorder(t, g.Handler(says)).Do(t, guardtest.Call{Header: header})
		}
		ask(guard, http.Header{"X-Says": {"1"}})
		ask(guard.With(idempotency.WithOutcome(idempotency.DefaultOutcome)), http.Header{})
		status = http.StatusBadRequest
		ask(guard, http.Header{})
		require.Zero(t, events.Count(event.HiddenFailure), name)
		status = http.StatusOK
		ask(guard, http.Header{})
		ask(guard, http.Header{})
		want := 0
		if test.hides {
			want = 1
			require.ErrorContains(t, events.Errors()[0], "SetOutcome", name)
		}
		require.Equal(t, want, events.Count(event.HiddenFailure), name)
	}
}
