package wiretest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A guard in front of httputil.ReverseProxy, behind it, and inside http.TimeoutHandler.

// quiet keeps expected panics and proxy errors out of the test's output.
var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// upstream answers with everything that makes a proxy reach for the connection: a header
// before the body, flushed chunks, one trailer that is announced and one that is not.
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
	s.Config.ErrorLog = quiet
	s.Start()
	t.Cleanup(s.Close)
	return proxyToServer(t, &guardtest.Server{URL: s.URL, Client: s.Client()})
}

func proxyToServer(t *testing.T, s *guardtest.Server) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(s.URL)
	require.NoError(t, err)
	return &httputil.ReverseProxy{
		Transport:     s.Client.Transport,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		ErrorLog:      quiet,
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

// A gateway and the service behind it are both guarded. Both echo the key, and an
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
		s := serve(guardtest.Noticing(gone, guarded))
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

// An upstream that dies in the middle makes the proxy panic with http.ErrAbortHandler. Half
// an answer is not an answer.
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

// With a guard inside http.TimeoutHandler the client gets 503 in time, the run goes on, and
// the retry gets its answer.
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
		hurried := http.TimeoutHandler(guarded, time.Millisecond, "")
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Hurry") != "" {
				hurried.ServeHTTP(w, r)
				return
			}
			guarded.ServeHTTP(w, r)
		}))
		key, got := s.Overrun(t, h, guardtest.Call{Header: http.Header{"X-Hurry": {"1"}}})
		require.Equal(t, http.StatusServiceUnavailable, got.Status)
		close(leave)
		got = s.Do(t, guardtest.Call{Key: key})
		require.True(t, got.Replayed())
		require.Equal(t, "charged", got.Body)
		require.EqualValues(t, 1, h.RunsOf(key))
	})
}
