package guardtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// A Server is a handler behind one of the transports that a rule is checked on: only on
// a real connection do trailers, HEAD, 1xx, hijacking and disconnects exist.
type Server struct {
	// URL is where it is reached, without a path.
	URL string
	// Client reaches it.
	Client *http.Client
}

// OnEachTransport runs a test three times: on a recorder, over HTTP/1.1 and over HTTP/2.
func OnEachTransport(t *testing.T, f func(t *testing.T, serve func(http.Handler) *Server)) {
	t.Helper()
	transports := map[string]func(testing.TB, http.Handler) *Server{
		"recorder": ServeRecorder,
		"http1":    ServeHTTP1,
		"http2":    ServeHTTP2,
	}
	for name, serve := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(h http.Handler) *Server { return serve(t, h) })
		})
	}
}

// ServeRecorder serves a handler without a connection, on an [httptest.ResponseRecorder].
func ServeRecorder(_ testing.TB, h http.Handler) *Server {
	return &Server{URL: "http://recorder.test", Client: &http.Client{Transport: recorderTransport{h}}}
}

type recorderTransport struct{ handler http.Handler }

func (rt recorderTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.NopCloser(http.NoBody)
	if r.Body != nil {
		body = r.Body
	}
	in := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), body)
	in.Header = r.Header.Clone()
	in.ContentLength = r.ContentLength
	rec := httptest.NewRecorder()
	rt.handler.ServeHTTP(rec, in)
	resp := rec.Result()
	for name, values := range resp.Header {
		if len(values) == 0 {
			delete(resp.Header, name) // suppressed: it would not be on the wire
		}
	}
	return resp, nil
}

// ServeHTTP1 serves a handler over HTTP/1.1.
func ServeHTTP1(t testing.TB, h http.Handler) *Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return &Server{URL: s.URL, Client: s.Client()}
}

// ServeHTTP2 serves a handler over HTTP/2.
func ServeHTTP2(t testing.TB, h http.Handler) *Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return &Server{URL: s.URL, Client: s.Client()}
}

// Request returns the request that a call is.
func (s *Server) Request(ctx context.Context, c Call) *http.Request {
	if c.Method == "" {
		c.Method = http.MethodPost
	}
	if c.Path == "" {
		c.Path = "/charges"
	}
	if c.Body == "" {
		c.Body = DefaultBody
	}
	var body io.Reader = strings.NewReader(c.Body)
	if c.NoBody {
		body = nil
	}
	r, err := http.NewRequestWithContext(ctx, c.Method, s.URL+c.Path, body)
	if err != nil {
		panic(err)
	}
	if c.Key != "" {
		r.Header.Set("Idempotency-Key", c.Key)
	}
	if c.Tenant != "" {
		r.Header.Set("X-Tenant", c.Tenant)
	}
	r.Header.Set("Content-Type", "application/json")
	maps.Copy(r.Header, c.Header)
	return r
}

// Do makes a request and reads its answer; the test fails if there is none.
func (s *Server) Do(t testing.TB, c Call) Reply {
	t.Helper()
	got, err := s.Try(t.Context(), c)
	require.NoError(t, err)
	return got
}

// Try makes a request and reads its answer.
func (s *Server) Try(ctx context.Context, c Call) (Reply, error) {
	return Read(s.Client.Do(s.Request(ctx, c)))
}

// Read reads an answer to its end, or passes the error on that a client got in its place.
func Read(resp *http.Response, err error) (Reply, error) {
	if err != nil {
		return Reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got := Reply{Status: resp.StatusCode, Header: resp.Header, Trailer: resp.Trailer, Body: string(body)}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		err = errors.Join(err, json.Unmarshal(body, &got.Problem))
	}
	return got, err
}

// Attempt is Do for other goroutines than the test's own.
func (s *Server) Attempt(t *testing.T, c Call) Reply {
	t.Helper()
	got, err := s.Try(t.Context(), c)
	if err != nil {
		t.Error(err)
	}
	return got
}

// Start makes a request that the test does not wait for, and returns when it is under
// way. It is for tests in a bubble of [synctest].
func (s *Server) Start(t *testing.T, c Call) <-chan Reply {
	t.Helper()
	done := make(chan Reply, 1)
	go func() { done <- s.Attempt(t, c) }()
	synctest.Wait()
	return done
}

// Bubble runs a subtest beside the others, in a bubble of [synctest].
func Bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

// OnEachServer runs a test over HTTP/1.1 and HTTP/2, where an httptest.ResponseRecorder
// is too unlike a connection.
func OnEachServer(t *testing.T, f func(t *testing.T, serve func(http.Handler) *Server)) {
	t.Helper()
	for name, serve := range map[string]func(testing.TB, http.Handler) *Server{"http1": ServeHTTP1, "http2": ServeHTTP2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(h http.Handler) *Server { return serve(t, h) })
		})
	}
}

// Real reports whether there is a connection between client and handler.
func (s *Server) Real() bool { return s.URL != "http://recorder.test" }

// Overrun sends the call again and again, each time with another key, until the handler has begun a run
// of it, and returns that key and the reply. It is for a server that answers 503 or 504 to requests which
// take too long: on a slow machine, the time may be over before the run begins, and a second request with
// one key would be a duplicate.
func (s *Server) Overrun(t *testing.T, h *Counter, c Call) (key string, got Reply) {
	t.Helper()
	for n := 0; ; n++ {
		c.Key = fmt.Sprint("overrun-", n)
		if got = s.Do(t, c); h.RunsOf(c.Key) > 0 {
			require.GreaterOrEqual(t, got.Status, http.StatusServiceUnavailable)
			return c.Key, got
		}
	}
}

// Begin makes a request that the test does not wait for, and returns at once.
func (s *Server) Begin(t *testing.T, c Call) <-chan Reply {
	t.Helper()
	done := make(chan Reply, 1)
	go func() { done <- s.Attempt(t, c) }()
	return done
}

// TryAlone is Try on a goroutine of its own, which the handler may end.
func (s *Server) TryAlone(ctx context.Context, c Call) (got Reply, err error) {
	err = ErrCut
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if v := recover(); v != nil && v != Boom {
				panic(v)
			}
		}()
		got, err = s.Try(ctx, c)
	}()
	<-ended
	return got, err
}

// Post makes a request on a handler with a body and a declared length, which need not fit.
func Post(h http.Handler, body io.ReadCloser, length int64) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set("Idempotency-Key", "k")
	r.Body, r.ContentLength = body, length
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}
