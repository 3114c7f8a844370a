package idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// Each event of a stream reaches the client before the handler writes the next, and the
// replay is the whole stream.
func TestStreamIsLiveAndReplayedWhole(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		const events = 3
		seen := make(chan struct{})
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			w.Header().Set("Content-Type", "text/event-stream")
			c := http.NewResponseController(w)
			for range events {
				_, _ = io.WriteString(w, "data: event\n\n")
				if err := c.Flush(); err != nil {
					t.Errorf("flush: %v", err)
				}
				<-seen
			}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		resp, err := s.client.Do(s.request(t.Context(), call{key: "k"}))
		require.NoError(t, err)
		defer resp.Body.Close()
		event := make([]byte, len("data: event\n\n"))
		for range events {
			_, err := io.ReadFull(resp.Body, event)
			require.NoError(t, err)
			require.Equal(t, "data: event\n\n", string(event))
			seen <- struct{}{}
		}
		rest, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, rest)

		again := s.do(t, call{key: "k"})
		require.True(t, again.replayed())
		require.Equal(t, strings.Repeat("data: event\n\n", events), again.body)
		require.Equal(t, "text/event-stream", again.header.Get("Content-Type"))
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// It is the write that fails first when the pieces are large, and the flush when they are
// small. The handler sees neither.
func TestStreamIsRecordedWhenTheClientIsGone(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		for _, size := range []int{10, 10_000} {
			gone := make(chan struct{})
			h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
				for i := range 50 {
					_, err := w.Write(make([]byte, size))
					err = errors.Join(err, http.NewResponseController(w).Flush())
					if err != nil {
						t.Errorf("write %d: %v", i, err)
					}
					if i == 0 {
						<-gone
					}
				}
			}}
			guarded := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
			s := serve(noticing(gone, guarded))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp, err := s.client.Do(s.request(ctx, call{key: "k"}))
			require.NoError(t, err)
			cancel()
			resp.Body.Close()

			got := s.do(t, call{key: "k"})
			require.True(t, got.replayed())
			require.Equal(t, string(make([]byte, 50*size)), got.body)
			require.EqualValues(t, 1, h.runs.Load())
		}
	})
}

// The body is counted as the handler writes it: in one piece, in many, streamed before
// or after it has grown too large.
func TestAnswerAtTheLimit(t *testing.T) {
	t.Parallel()
	const limit = 100
	flush := func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
	writers := map[string]func(w http.ResponseWriter, body string){
		"one write": func(w http.ResponseWriter, body string) { _, _ = io.WriteString(w, body) },
		"many writes": func(w http.ResponseWriter, body string) {
			for i := range body {
				_, _ = io.WriteString(w, body[i:i+1])
			}
		},
		"io.Copy": func(w http.ResponseWriter, body string) {
			_, _ = io.Copy(w, struct{ io.Reader }{strings.NewReader(body)})
		},
		"flush first": func(w http.ResponseWriter, body string) {
			flush(w)
			_, _ = io.WriteString(w, body)
		},
		"flush in the middle": func(w http.ResponseWriter, body string) {
			_, _ = io.WriteString(w, body[:50])
			flush(w)
			_, _ = io.WriteString(w, body[50:])
			flush(w)
		},
		"flush at the end": func(w http.ResponseWriter, body string) {
			_, _ = io.WriteString(w, body[:50])
			_, _ = io.WriteString(w, body[50:])
			flush(w)
		},
	}
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		for name, write := range writers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				body := "<!DOCTYPE html>" + strings.Repeat("x", limit-len("<!DOCTYPE html>"))
				first, _ := twice(t, serve, func(w http.ResponseWriter, _ *http.Request) { write(w, body) },
					idempotency.WithMaxResponseBody(limit))
				require.Equal(t, body, first.body)

				body += "y"
				h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { write(w, body) }}
				s := serve(newGuard(t, idempotency.NewMemoryStore(), idempotency.WithMaxResponseBody(limit)).Handler(h))
				first = s.do(t, call{key: "k"})
				require.Equal(t, http.StatusOK, first.status)
				require.Equal(t, body, first.body)
				if s.real() {
					bare := serve(h).do(t, call{})
					require.Equal(t, bare.header.Values("Content-Type"), first.header.Values("Content-Type"))
				}
				runs := h.runs.Load()
				requireProblem(t, s.do(t, call{key: "k"}), http.StatusConflict, problem.ResponseNotKept)
				require.Equal(t, runs, h.runs.Load())
			})
		}
	})
}

// Limits are about what is taken in. What is recorded already is answered for.
func TestLowerLimitsDoNotTouchWhatIsRecorded(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		store := idempotency.NewMemoryStore()
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}}
		first := serve(newGuard(t, store).Handler(h)).do(t, call{key: "k"})
		s := serve(newGuard(t, store, idempotency.WithMaxResponseBody(1), idempotency.WithTTL(time.Second)).Handler(h))
		requireReplay(t, first, s.do(t, call{key: "k"}))
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// upstream answers with everything that makes a proxy reach for the connection: a
// header before the body, flushed chunks, an announced trailer and one that is not.
func upstream(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Checksum")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	w.(http.Flusher).Flush()
	_, _ = w.Write(body)
	w.(http.Flusher).Flush()
	_, _ = w.Write(body)
	w.Header().Set("X-Checksum", "12345")
	w.Header().Set(http.TrailerPrefix+"X-Unannounced", "1")
}

func proxyTo(t *testing.T, h http.Handler) *httputil.ReverseProxy {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = discard
	s.Start()
	t.Cleanup(s.Close)
	target, err := url.Parse(s.URL)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Transport:     s.Client().Transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorLog:      discard,
	}
}

func TestReverseProxyRunsOnce(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		hits := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) { upstream(w, r) }}
		proxy := proxyTo(t, hits)
		bare := serve(proxy).do(t, call{key: "bare"})
		require.Equal(t, defaultBody+defaultBody, bare.body)
		require.Equal(t, http.Header{"X-Checksum": {"12345"}, "X-Unannounced": {"1"}}, bare.trailer)

		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(proxy))
		first := s.do(t, call{key: "k"})
		requireReplay(t, first, s.do(t, call{key: "k"}))
		require.Equal(t, bare.status, first.status)
		require.Equal(t, bare.body, first.body)
		require.Equal(t, bare.trailer, first.trailer)
		first.header.Del("Idempotency-Key")
		requireSameHeader(t, bare.header, first.header)
		require.EqualValues(t, 2, hits.runs.Load())
	})
}

// A gateway in front of a service that is guarded itself: both echo the key, and an
// informational answer makes the proxy forget the header it was given.
func TestReverseProxyToAGuardedService(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		hits := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.URL.Path == "/hints" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, "charged")
		}}
		proxy := proxyTo(t, newGuard(t, idempotency.NewMemoryStore()).Handler(hits))
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(proxy))
		for _, path := range []string{"/plain", "/hints"} {
			first, again := s.do(t, call{key: path, path: path}), s.do(t, call{key: path, path: path})
			requireReplay(t, first, again)
			for _, got := range []reply{first, again} {
				require.Equal(t, []string{path}, got.header.Values("Idempotency-Key"))
			}
		}
		require.EqualValues(t, 2, hits.runs.Load())
	})
}

func TestReverseProxyOutlivesItsClient(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		gone := make(chan struct{})
		hits := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, "one ")
			w.(http.Flusher).Flush()
			<-gone
			_, _ = io.WriteString(w, "two")
		}}
		guarded := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(proxyTo(t, hits))
		s := serve(noticing(gone, guarded))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := s.client.Do(s.request(ctx, call{key: "k"}))
		require.NoError(t, err)
		cancel()
		resp.Body.Close()
		got := s.do(t, call{key: "k"})
		require.True(t, got.replayed())
		require.Equal(t, "one two", got.body)
		require.EqualValues(t, 1, hits.runs.Load())
	})
}

// An upstream that dies in the middle makes the proxy panic with http.ErrAbortHandler:
// half an answer is not an answer.
func TestReverseProxyThatIsCutShortIsUnknown(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		hits := &counter{handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			_, _ = io.WriteString(w, "half")
			if run == 1 {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(proxyTo(t, hits)))
		_, err := s.try(t.Context(), call{key: "k"})
		require.Error(t, err)
		second := s.do(t, call{key: "k"})
		require.False(t, second.replayed())
		requireReplay(t, second, s.do(t, call{key: "k"}))
		require.EqualValues(t, 2, hits.runs.Load())
	})
}

// A guard inside http.TimeoutHandler: the client gets 503 in time, the run goes on, and
// the retry gets what it came to.
func TestTimeoutHandlerOutside(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, serve func(http.Handler) *server) {
		leave := make(chan struct{})
		h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			<-r.Context().Done() // the deadline of the request is kept
			<-leave
			_, _ = io.WriteString(w, "charged")
		}}
		guarded := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
		mux := http.NewServeMux()
		mux.Handle("/{path...}", guarded)
		mux.Handle("/timeout/", http.StripPrefix("/timeout", http.TimeoutHandler(guarded, time.Millisecond, "")))
		s := serve(mux)
		require.Equal(t, http.StatusServiceUnavailable, s.do(t, call{key: "k", path: "/timeout/charges"}).status)
		close(leave)
		got := s.do(t, call{key: "k"})
		require.True(t, got.replayed())
		require.Equal(t, "charged", got.body)
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// A handler that goes on to use the memory of its header changes nothing any more.
func TestHeaderOfAStreamIsRecordedAsItWasSent(t *testing.T) {
	t.Parallel()
	onEachTransport(t, func(t *testing.T, serve func(http.Handler) *server) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			state := []string{"begun"}
			w.Header()["X-State"] = state
			_ = http.NewResponseController(w).Flush()
			state[0] = "ended"
		}}
		s := serve(newGuard(t, idempotency.NewMemoryStore()).Handler(h))
		s.do(t, call{key: "k"})
		again := s.do(t, call{key: "k"})
		require.True(t, again.replayed())
		require.Equal(t, "begun", again.header.Get("X-State"))
	})
}
