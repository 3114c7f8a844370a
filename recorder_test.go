package idempotency_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// onEachServer runs a test over HTTP/1.1 and HTTP/2, where an httptest.ResponseRecorder
// is too unlike a connection.
func onEachServer(t *testing.T, f func(t *testing.T, serve func(http.Handler) *server)) {
	t.Helper()
	for name, serve := range map[string]func(testing.TB, http.Handler) *server{"http1": serveHTTP1, "http2": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(h http.Handler) *server { return serve(t, h) })
		})
	}
}

// real reports whether there is a connection between client and handler.
func (s *server) real() bool { return s.url != "http://recorder.test" }

// twice sends the same request twice and checks that the handler ran once and that the
// second answer is the replay of the first.
func twice(t *testing.T, serve func(http.Handler) *server, h http.HandlerFunc, opts ...idempotency.Option) (first, again reply) {
	t.Helper()
	runs := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) { h(w, r) }}
	s := serve(newGuard(t, idempotency.NewMemoryStore(), opts...).Handler(runs))
	first, again = s.do(t, call{key: "k"}), s.do(t, call{key: "k"})
	require.EqualValues(t, 1, runs.runs.Load())
	require.False(t, first.replayed())
	requireReplay(t, first, again)
	return first, again
}

// requireReplay checks that again is first, told a second time.
func requireReplay(t *testing.T, first, again reply) {
	t.Helper()
	require.True(t, again.replayed(), "status %d, body %s", again.status, again.body)
	require.Equal(t, first.status, again.status)
	require.Equal(t, first.body, again.body)
	require.Equal(t, first.trailer, again.trailer)
	a, b := first, again
	a.header, b.header = a.header.Clone(), b.header.Clone()
	for _, name := range []string{"Content-Length", "Trailer"} { // how it is sent, which a stream tells too late
		a.header.Del(name)
		b.header.Del(name)
	}
	requireSameHeader(t, a.header, b.header)
}

// A handler must not be able to tell, by what arrives at the client, that it runs under
// a guard, and neither must the client that retries.
func TestAnswerIsThatOfTheBareHandler(t *testing.T) {
	t.Parallel()
	handlers := map[string]http.HandlerFunc{
		"nothing":     func(http.ResponseWriter, *http.Request) {},
		"status only": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) },
		"io.Copy from a plain reader": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("copied ", 10_000))})
		},
		"io.Copy from a WriterTo": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader("copied"))
		},
		"WriteString": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.(io.StringWriter).WriteString("text") },
		"superfluous WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, "accepted")
			w.WriteHeader(http.StatusTeapot)
		},
		"field after WriteHeader": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Early", "2")
			w.Header().Set("X-Late", "1")
		},
		"type told from the body": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE html><title>t</title>")
		},
		"type told from two writes": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOC")
			_, _ = io.WriteString(w, "TYPE html><title>t</title>")
		},
		"type explicitly absent": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"type unknown of a coded body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x-none")
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"no content": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"not modified": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Etag", `"v1"`)
			w.WriteHeader(http.StatusNotModified)
		},
		"declared length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "12345")
		},
		"length that is no number": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "five")
			_, _ = io.WriteString(w, "12345")
		},
		"flush first": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
		},
		"flush after the status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusAccepted)
			w.(http.Flusher).Flush()
			w.Header().Set("X-Late", "1")
			_, _ = io.WriteString(w, "data: 1\n\n")
		},
		"flush in the middle": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<!DOCTYPE html>")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "rest")
			w.(http.Flusher).Flush()
		},
		"flush after a type that is too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusOK)
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "data: 1\n\n")
		},
		"flush and no body": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			w.(http.Flusher).Flush()
		},
	}
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		for name, h := range handlers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				first, _ := twice(t, serve, h)
				s := serve(h)
				if !s.real() {
					return // httptest's recorder has its own idea of Content-Type
				}
				bare := s.do(t, call{key: "k"})
				require.Equal(t, bare.status, first.status)
				require.Equal(t, bare.body, first.body)
				// The guard knows the length of a whole answer where net/http may not.
				bare.header.Del("Content-Length")
				first.header.Del("Content-Length")
				first.header.Del("Idempotency-Key")
				requireSameHeader(t, bare.header, first.header)
			})
		}
	})
}

func TestMistakesOfTheHandlerAreErrors(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
			var errs []error
			twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, err := io.WriteString(w, "body")
				errs = append(errs, err)
				_, err = w.Write([]byte("body"))
				errs = append(errs, err)
			})
			require.ErrorIs(t, errs[0], http.ErrBodyNotAllowed)
			require.ErrorIs(t, errs[1], http.ErrBodyNotAllowed)
		}

		var n int
		var err error
		first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "123")
			n, err = io.WriteString(w, "4")
		})
		require.Zero(t, n)
		require.ErrorIs(t, err, http.ErrContentLength)
		require.Equal(t, "123", first.body)
	})
}

func TestInvalidStatusPanicsAsInNetHTTP(t *testing.T) {
	t.Parallel()
	for _, status := range []int{-1, 0, 99, 1000} {
		want := panicOf(func() { httptest.NewRecorder().WriteHeader(status) })
		require.NotNil(t, want)
		var runs []any
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs = append(runs, panicOf(func() { w.WriteHeader(status) }))
			w.WriteHeader(http.StatusAccepted) // the handler recovered: its answer still counts
		})
		s := serveRecorder(t, newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		require.Equal(t, http.StatusAccepted, s.do(t, call{key: "k"}).status)
		require.True(t, s.do(t, call{key: "k"}).replayed())
		require.Equal(t, []any{want}, runs)
	}
}

func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestLengthDeclaredTooLongIsNoAnswer(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "12345")
			if r.URL.Path == "/streamed" {
				w.(http.Flusher).Flush()
			}
		}}
		g := newGuard(t, idempotency.NewMemoryStore())
		mux := http.NewServeMux()
		mux.Handle("/", g.Handler(h))
		mux.Handle("/held", g.With(idempotency.WithRecovery(idempotency.Hold)).Handler(h))
		s := serve(mux)
		for i, path := range []string{"/buffered", "/streamed"} {
			for attempt := 1; attempt <= 2; attempt++ {
				_, err := s.try(t.Context(), call{key: path, path: path})
				require.Error(t, err, "a short answer must not look whole")
				require.EqualValues(t, 2*i+attempt, h.runs.Load())
			}
		}
		_, err := s.try(t.Context(), call{key: "held", path: "/held"})
		require.Error(t, err)
		requireProblem(t, s.do(t, call{key: "held", path: "/held"}), http.StatusConflict, problem.OutcomeUnknown)
	})
}

// With 204 a length promises nothing, and over HTTP/1.1 nobody minds it.
func TestLengthOfNoContentIsNoPromise(t *testing.T) {
	t.Parallel()
	twice(t, func(h http.Handler) *server { return serveHTTP1(t, h) }, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusNoContent)
	})
}

// What the handler says of its run decides whether it runs again, but half an answer
// cannot be replayed as a whole one.
func TestShortAnswerThatTheHandlerCallsFinalIsNotReplayed(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Location", "/charges/1")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "12345")
			op, _ := idempotency.FromContext(r.Context())
			op.SetOutcome(idempotency.Final)
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		_, err := s.try(t.Context(), call{key: "k"})
		require.Error(t, err)
		got := s.do(t, call{key: "k"})
		requireProblem(t, got, http.StatusConflict, problem.ResponseNotKept)
		require.Equal(t, http.StatusCreated, got.problem.OriginalStatus)
		require.Equal(t, "/charges/1", got.problem.OriginalLocation)
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestHeadHasTheHeaderAndNoBody(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Length", "2000000") // over the limit, but nothing is kept
			w.Header().Set("Content-Type", "text/plain")
			n, err := io.WriteString(w, "body")
			if n != 4 || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore(), idempotency.WithMethods(http.MethodHead)).Handler(h))
		c := call{method: http.MethodHead, key: "k", noBody: true}
		first, again := s.do(t, c), s.do(t, c)
		requireReplay(t, first, again)
		if s.real() { // httptest's recorder keeps the body of a HEAD
			require.Empty(t, first.body)
		}
		for _, got := range []reply{first, again} {
			require.Equal(t, http.StatusOK, got.status)
			require.Equal(t, "2000000", got.header.Get("Content-Length"))
		}
		require.EqualValues(t, 1, h.runs.Load())
	})
}

func TestInformationalAnswersPassAndDoNotCount(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("X-Both", "1") // in the hint and in the answer
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			w.Header().Set("X-Final", "1")
			w.WriteHeader(http.StatusCreated)
			w.WriteHeader(http.StatusProcessing) // too late
			_, _ = io.WriteString(w, "created")
		}}
		outer := func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Outer", "1")
				next.ServeHTTP(w, r)
			})
		}
		s := serve(outer(newGuard(t, idempotency.NewMemoryStore()).Handler(h)))

		var mu sync.Mutex
		var hints []textproto.MIMEHeader
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				mu.Lock()
				defer mu.Unlock()
				if code != http.StatusEarlyHints {
					t.Errorf("informational status %d", code)
				}
				hints = append(hints, header)
				return nil
			},
		})
		first, err := s.try(ctx, call{key: "k"})
		require.NoError(t, err)
		require.Len(t, hints, 1)
		require.Equal(t, "</style.css>; rel=preload", hints[0].Get("Link"))
		require.Equal(t, "1", hints[0].Get("X-Outer"))

		again, err := s.try(ctx, call{key: "k"})
		require.NoError(t, err)
		require.Len(t, hints, 1, "a replay has nothing to hint at")
		requireReplay(t, first, again)
		require.Equal(t, http.StatusCreated, first.status)
		require.Equal(t, "created", first.body)
		require.Empty(t, first.header.Get("Link"))
		require.Equal(t, "1", first.header.Get("X-Outer"))
		require.Equal(t, "1", first.header.Get("X-Final"))
		require.Equal(t, "1", first.header.Get("X-Both"))
	})
}

func TestHijackIsRefusedAndTheRunRecorded(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) {
			for _, hijack := range []func() error{
				func() error { _, _, err := http.NewResponseController(w).Hijack(); return err },
				func() error {
					if h, ok := w.(http.Hijacker); ok {
						_, _, err := h.Hijack()
						return err
					}
					return http.ErrNotSupported
				},
			} {
				if err := hijack(); err == nil || !strings.Contains(err.Error(), http.ErrNotSupported.Error()) {
					t.Errorf("hijack: %v", err)
				}
			}
			_, _ = io.WriteString(w, "not hijacked")
		})
		require.Equal(t, "not hijacked", first.body)
	})
}

func TestDeadlinesReachTheConnection(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			c := http.NewResponseController(w)
			for _, err := range []error{
				c.SetReadDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex(), c.SetWriteDeadline(time.Now()),
			} {
				if err != nil {
					t.Error(err)
				}
			}
			_, _ = io.WriteString(w, "recorded")
		}}
		// On HTTP/2 the client hears of it while the run is still going on.
		s := serve(newGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h))
		_, err := s.try(t.Context(), call{key: "k"})
		require.Error(t, err, "the write deadline is over")
		got := s.do(t, call{key: "k"})
		require.True(t, got.replayed())
		require.Equal(t, "recorded", got.body)
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// A goroutine that the handler left behind gets errors, and the answer stays what it was
// when the handler returned. The race detector watches.
func TestWriteAfterReturnIsAnError(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		stray := make(chan error, 4)
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, "answer")
			started := make(chan struct{})
			go func() {
				close(started)
				for {
					if _, err := w.Write(nil); err != nil {
						break // the handler has returned
					}
				}
				w.WriteHeader(http.StatusTeapot)
				_, err := w.Write([]byte("stray"))
				stray <- err
				_, err = io.WriteString(w, "stray")
				stray <- err
				_, err = io.Copy(w, struct{ io.Reader }{strings.NewReader("stray")})
				stray <- err
				stray <- http.NewResponseController(w).Flush()
			}()
			<-started
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		first := s.do(t, call{key: "k"})
		for range cap(stray) {
			require.Error(t, <-stray)
		}
		require.Equal(t, "answer", first.body)
		requireReplay(t, first, s.do(t, call{key: "k"}))
	})
}

// noticing closes gone when the server notices that the first client has gone.
func noticing(gone chan struct{}, next http.Handler) http.Handler {
	var once sync.Once
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stop := context.AfterFunc(r.Context(), func() { once.Do(func() { close(gone) }) })
		defer stop()
		next.ServeHTTP(w, r)
	})
}

// The run goes on when its client has gone, and the answer waits for the next try.
func TestClientGoneDuringTheRunFindsTheAnswer(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		entered, gone := make(chan struct{}), make(chan struct{})
		h := &counter{}
		disconnect := make(chan struct{})
		h.handler = func(w http.ResponseWriter, r *http.Request, _ int64) {
			close(entered)
			<-disconnect
			if err := r.Context().Err(); err != nil {
				t.Errorf("the run's context ended with its client: %v", err)
			}
			_, _ = io.WriteString(w, "done")
		}
		guarded := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
		s := serve(noticing(gone, guarded))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { <-entered; cancel() }()
		_, err := s.try(ctx, call{key: "k"})
		require.ErrorIs(t, err, context.Canceled)
		<-gone // the server has noticed
		close(disconnect)
		got := s.do(t, call{key: "k"})
		require.Equal(t, "done", got.body)
		require.True(t, got.replayed())
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// discard keeps expected panics and proxy errors out of the test's output.
var discard = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
