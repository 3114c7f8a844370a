package runtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

func TestStatusDecides(t *testing.T) {
	notExecuted := map[int]bool{307: true, 308: true, 401: true, 407: true, 421: true, 425: true, 429: true}
	gaveUp := map[int]bool{408: true, 499: true} // says a middleware while the work goes on
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				status, _ := strconv.Atoi(r.URL.Path[1:])
				w.WriteHeader(status)
			}}
			s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
			for status := 200; status <= 599; status++ {
				c := guardtest.Call{Key: strconv.Itoa(status), Path: "/" + strconv.Itoa(status)}
				if status == http.StatusRequestTimeout && s.Real() {
					continue // the client of net/http retries these by itself
				}
				if gaveUp[status] {
					require.Contains(t, []string{string(problem.NoAnswer), string(problem.OutcomeUnknown)}, s.Do(t, c).Header.Get(problem.Header))
				} else {
					require.Equal(t, status, s.Do(t, c).Status)
				}
				switch {
				case notExecuted[status]:
					guardtest.RequireFate(t, s, h, c, guardtest.RunsNext)
				case status >= 500, gaveUp[status]:
					guardtest.RequireFate(t, s, h, c, unknown)
				default:
					guardtest.RequireFate(t, s, h, c, guardtest.Replays)
				}
			}
		})
	})
}

// A recovery inside the guard answers 500, and so does a handler whose encoder fails, after the first byte of an answer.
// That is the end of a run of unknown outcome. A success behind which a timeout says 504 is one all the same.
func TestFailureBehindTheFirstByte(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			first, late, _ := strings.Cut(r.URL.Path[1:], "-")
			status, _ := strconv.Atoi(first)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "half an ans")
			for late := range strings.SplitSeq(late, "-") {
				status, _ := strconv.Atoi(late)
				w.WriteHeader(status)
			}
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
		for statuses, fate := range map[string]guardtest.Fate{
			"201-500": unknown, "201-502": unknown, "201-599": unknown, "201-500-504": unknown, "201-504-500": unknown,
			"201-504": guardtest.Replays, "201-400": guardtest.Replays, "201-201": guardtest.Replays,
			// A middleware answers the error that the handler has refused for. A timeout says that the refusal may be about the time.
			"422-500": guardtest.Replays, "400-502": guardtest.Replays, "401-500": guardtest.RunsNext,
			"422-504": unknown, "422-500-504": unknown, "422-504-500": unknown, "500-500": unknown, "408-500": unknown,
		} {
			c := guardtest.Call{Key: statuses, Path: "/" + statuses}
			s.Do(t, c)
			guardtest.RequireFate(t, s, h, c, fate)
		}
	})
}

// 409 with Retry-After is how other libraries say that the first request is still running.
func TestConflictThatInvitesARetryIsNotAnAnswer(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusConflict)
			w.Header()["Retry-After"][0] = "" // the client is told what was written
		}}
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
		c := guardtest.Call{Key: "k"}
		s.Do(t, c)
		guardtest.RequireFate(t, s, h, c, unknown)
	})
}

func TestHandlerDecides(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				op, _ := idempotency.FromContext(r.Context())
				switch r.URL.Path {
				case "/final":
					op.SetOutcome(idempotency.Final)
					w.WriteHeader(http.StatusBadGateway)
				case "/not-executed":
					op.SetOutcome(idempotency.NotExecuted)
					w.WriteHeader(http.StatusBadGateway)
				case "/unknown":
					op.SetOutcome(idempotency.Final)
					op.SetOutcome(idempotency.Unknown) // the last call counts
				case "/nonsense":
					op.SetOutcome(0)
					op.SetOutcome(77)
				}
			}}
			s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
			for path, want := range map[string]guardtest.Fate{
				"/final": guardtest.Replays, "/not-executed": guardtest.RunsNext, "/unknown": unknown, "/nonsense": guardtest.Replays,
			} {
				c := guardtest.Call{Key: path, Path: path}
				s.Do(t, c)
				guardtest.RequireFate(t, s, h, c, want)
			}
		})
	})
}

func TestRouteDecides(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				w.Header().Set("X-Path", r.URL.Path)
				w.WriteHeader(http.StatusAccepted)
				w.Header()["X-Path"][0] = "/changed" // and not judged by that
				if r.URL.Path == "/overridden" {
					guardtest.Op(r.Context()).SetOutcome(idempotency.Final)
				}
			}}
			judge := func(status int, header http.Header) idempotency.Outcome {
				assert.Equal(t, http.StatusAccepted, status, "judged status %d", status)
				switch header.Get("X-Path") {
				case "/final":
					return idempotency.Final
				case "/not-executed":
					return idempotency.NotExecuted
				case "/nonsense":
					return 77
				}
				return 0
			}
			s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery, idempotency.WithOutcome(judge)).Handler(h))
			for path, want := range map[string]guardtest.Fate{
				"/final": guardtest.Replays, "/overridden": guardtest.Replays, "/not-executed": guardtest.RunsNext, "/nonsense": unknown, "/zero": unknown,
			} {
				c := guardtest.Call{Key: path, Path: path}
				s.Do(t, c)
				guardtest.RequireFate(t, s, h, c, want)
			}
		})
	})
}

// panics are the values that must come out of the guard as they went in.
var panics = []any{"a string", errors.New("an error"), http.ErrAbortHandler, 42}

// A panic is Unknown, whatever the handler has written or said before, and passes
// through: the value is the same and the stack is still that of the handler.
func TestPanicPassesThrough(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		for _, value := range panics {
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				guardtest.Op(r.Context()).SetOutcome(idempotency.Final)
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "half an answer")
				panickingHandler(value)
			}}
			guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h)
			var got any
			var stack []byte
			s := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if got = recover(); got != nil {
						stack = debug.Stack()
					}
				}()
				guarded.ServeHTTP(w, r)
			}))
			first := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, value, got)
			require.Contains(t, string(stack), "panickingHandler")
			require.Empty(t, first.Body, "nothing of it is shown")
			guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
		}
	})
}

func panickingHandler(value any) { panic(value) }

func TestRunThatDoesNotReturnIsUnknown(t *testing.T) {
	ends := map[string]func(w http.ResponseWriter){
		"panic":                   func(http.ResponseWriter) { panic("expected by the test") },
		"abort":                   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"abort after a write":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); panic(http.ErrAbortHandler) },
		"abort of a stream":       func(w http.ResponseWriter) { w.(http.Flusher).Flush(); panic(http.ErrAbortHandler) },
		"abort of a large answer": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 2<<20)); panic(http.ErrAbortHandler) },
		"Goexit":                  func(http.ResponseWriter) { runtime.Goexit() },
		"Goexit after a write":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); runtime.Goexit() },
	}
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			for name, end := range ends {
				t.Run(name, func(t *testing.T) {
					h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { end(w) }}
					s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
					_, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
					require.Error(t, err, "the connection is cut")
					guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, unknown)
				})
			}
		})
	})
}

// A function of the route that panics must not leave the key claimed for as long as the
// process lives. An answer that was found to be definite before is not made to be run again.
func TestPanicWhileJudgingIsUnknown(t *testing.T) {
	guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
		type row struct {
			idempotency.Option
			guardtest.Fate
			shown string // to the client of the run
		}
		guardtest.Each(t, map[string]row{
			"outcome": {idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { panic("judge") }), unknown, ""},
			"sealer":  {idempotency.WithSealer(panickingSealer{}), guardtest.IsHeld, `{"run":1}`},
		}, func(t *testing.T, faulty row) {
			h := &guardtest.Counter{}
			guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery, faulty.Option).Handler(h)
			s := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { _ = recover() }()
				guarded.ServeHTTP(w, r)
			}))
			require.Equal(t, faulty.shown, s.Do(t, guardtest.Call{Key: "k"}).Body)
			guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, faulty.Fate)
		})
	})
}

type panickingSealer struct{ idempotency.Sealer }

func (panickingSealer) Seal([]byte, []byte) ([]byte, error) { panic("seal") }

// A handler that gives up because its time is over, and says nothing, has given no
// answer.
func TestSilenceAfterTheEndOfTheContextIsUnknown(t *testing.T) {
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, unknown guardtest.Fate) {
			var limit atomic.Int64
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				if limit.Load() < int64(guardtest.Patience) {
					<-r.Context().Done()
				}
				if r.URL.Path == "/answered" {
					w.WriteHeader(http.StatusAccepted)
				}
			}}
			guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h)
			s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), time.Duration(limit.Load()))
				defer cancel()
				guarded.ServeHTTP(w, r.WithContext(ctx))
			}))
			for path, want := range map[string]guardtest.Fate{"/silent": unknown, "/answered": guardtest.Replays} {
				limit.Store(int64(100 * time.Millisecond))
				runs := h.Runs.Load()
				first := s.Do(t, guardtest.Call{Key: path, Path: path})
				for h.Runs.Load() == runs { // the time was over before the run could begin
					limit.Store(2 * limit.Load())
					first = s.Do(t, guardtest.Call{Key: path, Path: path})
				}
				if path == "/answered" {
					require.Equal(t, http.StatusAccepted, first.Status)
				} else {
					// An empty 200 would be a lie.
					want := map[guardtest.Fate]problem.Code{guardtest.RunsNext: problem.NoAnswer, guardtest.IsHeld: problem.OutcomeUnknown}[unknown]
					guardtest.RequireProblem(t, first, problem.New(want).Status, want)
				}
				limit.Store(int64(guardtest.Patience)) // that of a run that is only counted
				guardtest.RequireFate(t, s, h, guardtest.Call{Key: path, Path: path}, want)
			}
		})
	})
}

func TestClientCancelEndsTheRun(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		h := &guardtest.Counter{Handler: func(_ http.ResponseWriter, r *http.Request, run int64) {
			if run == 1 {
				cancel()
				<-r.Context().Done()
			}
		}}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithClientCancel(true)).Handler(h)
		var once sync.Once
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer once.Do(func() { close(ended) })
			guarded.ServeHTTP(w, r)
		}))
		_, err := s.Try(ctx, guardtest.Call{Key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		<-ended
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, guardtest.RunsNext)
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, guardtest.Replays)
	})
}

// The request that a handler gets is the guard's own copy, so that net/http does not see
// the temporary files of its form.
func TestUploadedFilesAreRemoved(t *testing.T) {
	form, contentType := upload(t)
	down := &guardtest.FaultStore{Behind: idempotency.NewMemoryStore()}
	down.On("claim", guardtest.Always(guardtest.Refuse))
	noKey := idempotency.WithKeyFunc(func(*http.Request, []byte) (string, error) { return "", nil })
	for name, set := range map[string]struct {
		store idempotency.Store
		opt   idempotency.Option
	}{
		"run":       {idempotency.NewMemoryStore(), nil},
		"fail open": {down, idempotency.WithFailOpen(true)},
		"no key":    {idempotency.NewMemoryStore(), noKey},
	} {
		for _, panics := range []bool{false, true} {
			var path string
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(0); err != nil { // no memory for files
					t.Error(err)
					return
				}
				file, _, err := r.FormFile("file")
				if err != nil {
					t.Error(err)
					return
				}
				defer file.Close()
				if f, ok := file.(*os.File); ok {
					path = f.Name()
				}
				if panics {
					panic("expected by the test")
				}
			})
			guarded := guardtest.NewGuard(t, set.store, set.opt).Handler(h)
			s := guardtest.ServeRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { _ = recover() }()
				guarded.ServeHTTP(w, r)
			}))
			s.Do(t, guardtest.Call{Key: strconv.FormatBool(panics), Body: form, Header: http.Header{"Content-Type": {contentType}}})
			require.NotEmpty(t, path, "%s: the upload fitted into memory", name)
			require.NoFileExists(t, path, name)
		}
	}
}

// upload returns a form with a file.
func upload(t *testing.T) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", "file")
	require.NoError(t, err)
	_, err = part.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String(), w.FormDataContentType()
}

func TestLengthDeclaredTooLongIsNoAnswer(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "12345")
			if r.URL.Path == "/streamed" {
				w.(http.Flusher).Flush()
			}
		}}
		g := guardtest.NewGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		mux.Handle("/", g.Handler(h))
		mux.Handle("/held", g.With(idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		s := serve(mux)
		for i, path := range []string{"/buffered", "/streamed"} {
			for attempt := 1; attempt <= 2; attempt++ {
				_, err := s.Try(t.Context(), guardtest.Call{Key: path, Path: path})
				require.Error(t, err, "a short answer must not look whole")
				require.EqualValues(t, 2*i+attempt, h.Runs.Load())
			}
		}
		_, err := s.Try(t.Context(), guardtest.Call{Key: "held", Path: "/held"})
		require.Error(t, err)
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "held", Path: "/held"}), http.StatusConflict, problem.OutcomeUnknown)
	})
}

// The handler's own word decides whether it runs again, but half an answer cannot be replayed
// as a whole one.
func TestShortAnswerThatTheHandlerCallsFinalIsNotReplayed(t *testing.T) {
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Location", "/charges/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "12345")
			guardtest.Op(r.Context()).SetOutcome(idempotency.Final)
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		_, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Error(t, err)
		got := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
		require.Equal(t, http.StatusCreated, got.Problem.OriginalStatus)
		require.Equal(t, "/charges/1", got.Problem.OriginalLocation)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A status says that nothing was done, and a step says otherwise. The step is believed: the
// key of a route under Hold is held.
func TestStepOutvotesTheStatus(t *testing.T) {
	type row struct {
		step func(context.Context) (int, error)
		opts []idempotency.Option
		want guardtest.Fate
	}
	guardtest.Each(t, map[string]row{
		"done":      {func(context.Context) (int, error) { return 1, nil }, nil, guardtest.IsHeld},
		"failed":    {func(context.Context) (int, error) { return 0, errors.New("no answer") }, nil, guardtest.IsHeld},
		"not done":  {func(context.Context) (int, error) { return 0, idempotency.NotDone(errors.New("refused")) }, nil, guardtest.RunsNext},
		"own rule":  {func(context.Context) (int, error) { return 1, nil }, []idempotency.Option{idempotency.WithOutcome(idempotency.DefaultOutcome)}, guardtest.RunsNext},
		"not begun": {nil, nil, guardtest.RunsNext},
	}, func(t *testing.T, c row) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if c.step != nil {
				_, _ = idempotency.Step(r.Context(), "charge", c.step)
			}
			w.WriteHeader(http.StatusTooManyRequests)
		}}
		opts := append(c.opts, idempotency.WithRecovery(idempotency.Hold))
		s := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireFate(t, s, h, guardtest.Call{Key: "k"}, c.want)
	})
}
