package idempotency_test

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
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A fate is what a run that ended in some way means for the requests after it.
type fate string

const (
	replays  fate = "replays"   // the answer is recorded
	runsNext fate = "runs next" // as the next attempt
	isHeld   fate = "is held"   // 409 outcome-unknown
)

// requireFate sends the request again and checks what it gets.
func requireFate(t *testing.T, s *server, h *counter, c call, want fate) {
	t.Helper()
	before := h.runs.Load()
	got, err := s.try(t.Context(), c)
	switch want {
	case replays:
		require.NoError(t, err)
		require.True(t, got.replayed(), "status %d, body %s", got.status, got.body)
		require.Equal(t, before, h.runs.Load())
	case runsNext:
		require.Equal(t, before+1, h.runs.Load())
	case isHeld:
		require.NoError(t, err)
		requireProblem(t, got, http.StatusConflict, problem.OutcomeUnknown)
		require.Equal(t, before, h.runs.Load())
	}
}

// recoveries runs a test under each recovery policy, with the fate of an unknown outcome.
func recoveries(t *testing.T, f func(t *testing.T, recovery idempotency.Option, unknown fate)) {
	t.Helper()
	for recovery, unknown := range map[idempotency.Recovery]fate{idempotency.Rerun: runsNext, idempotency.Hold: isHeld} {
		t.Run(recovery.String(), func(t *testing.T) { f(t, idempotency.WithRecovery(recovery), unknown) })
	}
}

func TestStatusDecides(t *testing.T) {
	t.Parallel()
	notExecuted := map[int]bool{401: true, 407: true, 408: true, 421: true, 425: true, 429: true}
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
			h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				status, _ := strconv.Atoi(r.URL.Path[1:])
				w.WriteHeader(status)
			}}
			s := serve(newGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
			for status := 200; status <= 599; status++ {
				c := call{key: strconv.Itoa(status), path: "/" + strconv.Itoa(status)}
				if status == http.StatusRequestTimeout && s.real() {
					continue // the client of net/http retries these by itself
				}
				require.Equal(t, status, s.do(t, c).status)
				switch {
				case notExecuted[status]:
					requireFate(t, s, h, c, runsNext)
				case status >= 500:
					requireFate(t, s, h, c, unknown)
				default:
					requireFate(t, s, h, c, replays)
				}
			}
		})
	})
}

func TestHandlerDecides(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
			h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
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
			s := serve(newGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
			for path, want := range map[string]fate{
				"/final": replays, "/not-executed": runsNext, "/unknown": unknown, "/nonsense": replays,
			} {
				c := call{key: path, path: path}
				s.do(t, c)
				requireFate(t, s, h, c, want)
			}
		})
	})
}

func TestRouteDecides(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
			h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				w.Header().Set("X-Path", r.URL.Path)
				w.WriteHeader(http.StatusAccepted)
				if r.URL.Path == "/overridden" {
					op, _ := idempotency.FromContext(r.Context())
					op.SetOutcome(idempotency.Final)
				}
			}}
			judge := func(status int, header http.Header) idempotency.Outcome {
				if status != http.StatusAccepted {
					t.Errorf("judged status %d", status)
				}
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
			s := serve(newGuard(t, idempotency.NewMemoryStore(), recovery, idempotency.WithOutcome(judge)).Handler(h))
			for path, want := range map[string]fate{
				"/final": replays, "/overridden": replays, "/not-executed": runsNext, "/nonsense": unknown, "/zero": unknown,
			} {
				c := call{key: path, path: path}
				s.do(t, c)
				requireFate(t, s, h, c, want)
			}
		})
	})
}

// panics are the values that must come out of the guard as they went in.
var panics = []any{"a string", errors.New("an error"), http.ErrAbortHandler, 42}

// A panic is Unknown, whatever the handler has written or said before, and passes
// through: the value is the same and the stack is still that of the handler.
func TestPanicPassesThrough(t *testing.T) {
	t.Parallel()
	recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
		for _, value := range panics {
			h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				op, _ := idempotency.FromContext(r.Context())
				op.SetOutcome(idempotency.Final)
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "half an answer")
				panickingHandler(value)
			}}
			guarded := newGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h)
			var got any
			var stack []byte
			s := serveRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if got = recover(); got != nil {
						stack = debug.Stack()
					}
				}()
				guarded.ServeHTTP(w, r)
			}))
			first := s.do(t, call{key: "k"})
			require.Equal(t, value, got)
			require.Contains(t, string(stack), "panickingHandler")
			require.Empty(t, first.body, "nothing of it is shown")
			requireFate(t, s, h, call{key: "k"}, unknown)
		}
	})
}

func panickingHandler(value any) { panic(value) }

func TestRunThatDoesNotReturnIsUnknown(t *testing.T) {
	t.Parallel()
	ends := map[string]func(w http.ResponseWriter){
		"panic":                   func(http.ResponseWriter) { panic("expected by the test") },
		"abort":                   func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"abort after a write":     func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); panic(http.ErrAbortHandler) },
		"abort of a stream":       func(w http.ResponseWriter) { w.(http.Flusher).Flush(); panic(http.ErrAbortHandler) },
		"abort of a large answer": func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, 2<<20)); panic(http.ErrAbortHandler) },
		"Goexit":                  func(http.ResponseWriter) { runtime.Goexit() },
		"Goexit after a write":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x"); runtime.Goexit() },
	}
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
			for name, end := range ends {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { end(w) }}
					s := serve(newGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h))
					_, err := s.try(t.Context(), call{key: "k"})
					require.Error(t, err, "the connection is cut")
					requireFate(t, s, h, call{key: "k"}, unknown)
				})
			}
		})
	})
}

// A function of the route that panics must not leave the key claimed for as long as the
// process lives. An answer that was found to be definite before is not made to be run again.
func TestPanicWhileJudgingIsUnknown(t *testing.T) {
	t.Parallel()
	recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
		for name, faulty := range map[string]struct {
			idempotency.Option
			fate
		}{
			"outcome": {idempotency.WithOutcome(func(int, http.Header) idempotency.Outcome { panic("judge") }), unknown},
			"sealer":  {idempotency.WithSealer(panickingSealer{}), isHeld},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := &counter{}
				guarded := newGuard(t, idempotency.NewMemoryStore(), recovery, faulty.Option).Handler(h)
				s := serveRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() { _ = recover() }()
					guarded.ServeHTTP(w, r)
				}))
				require.Empty(t, s.do(t, call{key: "k"}).body)
				requireFate(t, s, h, call{key: "k"}, faulty.fate)
			})
		}
	})
}

type panickingSealer struct{ idempotency.Sealer }

func (panickingSealer) Seal([]byte, []byte) ([]byte, error) { panic("seal") }

// A handler that gives up because its time is over, and says nothing, has given no
// answer.
func TestSilenceAfterTheEndOfTheContextIsUnknown(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		recoveries(t, func(t *testing.T, recovery idempotency.Option, unknown fate) {
			h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
				<-r.Context().Done()
				if r.URL.Path == "/answered" {
					w.WriteHeader(http.StatusAccepted)
				}
			}}
			guarded := newGuard(t, idempotency.NewMemoryStore(), recovery).Handler(h)
			s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), 1)
				defer cancel()
				guarded.ServeHTTP(w, r.WithContext(ctx))
			}))
			for path, want := range map[string]fate{"/silent": unknown, "/answered": replays} {
				first := s.do(t, call{key: path, path: path})
				if path == "/answered" {
					require.Equal(t, http.StatusAccepted, first.status)
				} else {
					require.Equal(t, http.StatusConflict, first.status, "an empty 200 would be a lie")
					require.Equal(t, unknown == runsNext, first.problem.Code == problem.InFlight)
				}
				requireFate(t, s, h, call{key: path, path: path}, want)
			}
		})
	})
}

func TestClientCancelEndsTheRun(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		h := &counter{handler: func(_ http.ResponseWriter, r *http.Request, run int64) {
			if run == 1 {
				cancel()
				<-r.Context().Done()
			}
		}}
		guarded := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithClientCancel(true)).Handler(h)
		var once sync.Once
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer once.Do(func() { close(ended) })
			guarded.ServeHTTP(w, r)
		}))
		_, err := s.try(ctx, call{key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		<-ended
		requireFate(t, s, h, call{key: "k"}, runsNext)
		requireFate(t, s, h, call{key: "k"}, replays)
	})
}

// The request that a handler gets is the guard's own copy, so that net/http does not see
// the temporary files of its form.
func TestUploadedFilesAreRemoved(t *testing.T) {
	t.Parallel()
	form, contentType := upload(t)
	down := &faultStore{behind: idempotency.NewMemoryStore()}
	down.on("claim", always(refuse))
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
			guarded := newGuard(t, set.store, set.opt).Handler(h)
			s := serveRecorder(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { _ = recover() }()
				guarded.ServeHTTP(w, r)
			}))
			s.do(t, call{key: strconv.FormatBool(panics), body: form, header: http.Header{"Content-Type": {contentType}}})
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
