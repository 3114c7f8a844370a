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
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Each event of a stream reaches the client before the handler writes the next, and the
// replay is the whole stream.
func TestStreamIsLiveAndReplayedWhole(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		const events = 3
		seen := make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
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
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		resp, err := s.Client.Do(s.Request(t.Context(), guardtest.Call{Key: "k"}))
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

		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, strings.Repeat("data: event\n\n", events), again.Body)
		require.Equal(t, "text/event-stream", again.Header.Get("Content-Type"))
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// It is the write that fails first when the pieces are large, and the flush when they are
// small. The handler sees neither.
func TestStreamIsRecordedWhenTheClientIsGone(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for _, size := range []int{10, 10_000} {
			gone := make(chan struct{})
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
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
			guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
			s := serve(noticing(gone, guarded))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp, err := s.Client.Do(s.Request(ctx, guardtest.Call{Key: "k"}))
			require.NoError(t, err)
			cancel()
			resp.Body.Close()

			got := s.Do(t, guardtest.Call{Key: "k"})
			require.True(t, got.Replayed())
			require.Equal(t, string(make([]byte, 50*size)), got.Body)
			require.EqualValues(t, 1, h.Runs.Load())
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
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		for name, write := range writers {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				body := "<!DOCTYPE html>" + strings.Repeat("x", limit-len("<!DOCTYPE html>"))
				first, _ := guardtest.Twice(t, serve, func(w http.ResponseWriter, _ *http.Request) { write(w, body) },
					idempotency.WithMaxResponseBody(limit))
				require.Equal(t, body, first.Body)

				body += "y"
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) { write(w, body) }}
				s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithMaxResponseBody(limit)).Handler(h))
				first = s.Do(t, guardtest.Call{Key: "k"})
				require.Equal(t, http.StatusOK, first.Status)
				require.Equal(t, body, first.Body)
				if s.Real() {
					bare := serve(h).Do(t, guardtest.Call{})
					require.Equal(t, bare.Header.Values("Content-Type"), first.Header.Values("Content-Type"))
				}
				runs := h.Runs.Load()
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.ResponseNotKept)
				require.Equal(t, runs, h.Runs.Load())
			})
		}
	})
}

// Limits are about what is taken in. What is recorded already is answered for.
func TestLowerLimitsDoNotTouchWhatIsRecorded(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		store := idempotency.NewMemoryStore()
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, strings.Repeat("x", 1000))
		}}
		first := serve(guardtest.NewGuard(t, store).Handler(h)).Do(t, guardtest.Call{Key: "k"})
		s := serve(guardtest.NewGuard(t, store, idempotency.WithMaxResponseBody(1), idempotency.WithTTL(time.Second)).Handler(h))
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.EqualValues(t, 1, h.Runs.Load())
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
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) { upstream(w, r) }}
		proxy := proxyTo(t, hits)
		bare := serve(proxy).Do(t, guardtest.Call{Key: "bare"})
		require.Equal(t, guardtest.DefaultBody+guardtest.DefaultBody, bare.Body)
		require.Equal(t, http.Header{"X-Checksum": {"12345"}, "X-Unannounced": {"1"}}, bare.Trailer)

		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxy))
		first := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, bare.Status, first.Status)
		require.Equal(t, bare.Body, first.Body)
		require.Equal(t, bare.Trailer, first.Trailer)
		first.Header.Del("Idempotency-Key")
		guardtest.RequireSameHeader(t, bare.Header, first.Header)
		require.EqualValues(t, 2, hits.Runs.Load())
	})
}

// A gateway in front of a service that is guarded itself: both echo the key, and an
// informational answer makes the proxy forget the header it was given.
func TestReverseProxyToAGuardedService(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			if r.URL.Path == "/hints" {
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.WriteString(w, "charged")
		}}
		proxy := proxyTo(t, guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(hits))
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxy))
		for _, path := range []string{"/plain", "/hints"} {
			first, again := s.Do(t, guardtest.Call{Key: path, Path: path}), s.Do(t, guardtest.Call{Key: path, Path: path})
			guardtest.RequireReplay(t, first, again)
			for _, got := range []guardtest.Reply{first, again} {
				require.Equal(t, []string{path}, got.Header.Values("Idempotency-Key"))
			}
		}
		require.EqualValues(t, 2, hits.Runs.Load())
	})
}

func TestReverseProxyOutlivesItsClient(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		gone := make(chan struct{})
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			_, _ = io.WriteString(w, "one ")
			w.(http.Flusher).Flush()
			<-gone
			_, _ = io.WriteString(w, "two")
		}}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(proxyTo(t, hits))
		s := serve(noticing(gone, guarded))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resp, err := s.Client.Do(s.Request(ctx, guardtest.Call{Key: "k"}))
		require.NoError(t, err)
		cancel()
		resp.Body.Close()
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, "one two", got.Body)
		require.EqualValues(t, 1, hits.Runs.Load())
	})
}

// An upstream that dies in the middle makes the proxy panic with http.ErrAbortHandler:
// half an answer is not an answer.
func TestReverseProxyThatIsCutShortIsUnknown(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		hits := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			_, _ = io.WriteString(w, "half")
			if run == 1 {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxyTo(t, hits)))
		_, err := s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Error(t, err)
		second := s.Do(t, guardtest.Call{Key: "k"})
		require.False(t, second.Replayed())
		guardtest.RequireReplay(t, second, s.Do(t, guardtest.Call{Key: "k"}))
		require.EqualValues(t, 2, hits.Runs.Load())
	})
}

// A guard inside http.TimeoutHandler: the client gets 503 in time, the run goes on, and
// the retry gets what it came to.
func TestTimeoutHandlerOutside(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		leave := make(chan struct{})
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
			<-r.Context().Done() // the deadline of the request is kept
			<-leave
			_, _ = io.WriteString(w, "charged")
		}}
		guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithWait(time.Minute)).Handler(h)
		mux := http.NewServeMux()
		mux.Handle("/{path...}", guarded)
		mux.Handle("/timeout/", http.StripPrefix("/timeout", http.TimeoutHandler(guarded, time.Millisecond, "")))
		s := serve(mux)
		require.Equal(t, http.StatusServiceUnavailable, s.Do(t, guardtest.Call{Key: "k", Path: "/timeout/charges"}).Status)
		close(leave)
		got := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, got.Replayed())
		require.Equal(t, "charged", got.Body)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// A handler that goes on to use the memory of its header changes nothing any more.
func TestHeaderOfAStreamIsRecordedAsItWasSent(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		h := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			state := []string{"begun"}
			w.Header()["X-State"] = state
			_ = http.NewResponseController(w).Flush()
			state[0] = "ended"
		}}
		s := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h))
		s.Do(t, guardtest.Call{Key: "k"})
		again := s.Do(t, guardtest.Call{Key: "k"})
		require.True(t, again.Replayed())
		require.Equal(t, "begun", again.Header.Get("X-State"))
	})
}
