package idempotency_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A server is a handler behind one of the transports that a rule is checked on: only on
// a real connection do trailers, HEAD, 1xx, hijacking and disconnects exist.
type server struct {
	url    string
	client *http.Client
}

// onEachTransport runs a test three times: on a recorder, over HTTP/1.1 and over HTTP/2.
func onEachTransport(t *testing.T, f func(t *testing.T, serve func(http.Handler) *server)) {
	t.Helper()
	transports := map[string]func(testing.TB, http.Handler) *server{
		"recorder": serveRecorder,
		"http1":    serveHTTP1,
		"http2":    serveHTTP2,
	}
	for name, serve := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(h http.Handler) *server { return serve(t, h) })
		})
	}
}

func serveRecorder(_ testing.TB, h http.Handler) *server {
	return &server{url: "http://recorder.test", client: &http.Client{Transport: recorderTransport{h}}}
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

func serveHTTP1(t testing.TB, h http.Handler) *server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return &server{url: s.URL, client: s.Client()}
}

func serveHTTP2(t testing.TB, h http.Handler) *server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return &server{url: s.URL, client: s.Client()}
}

// A call is one request of a test. The zero value is a keyless POST /charges with a
// small JSON body.
type call struct {
	method, path, key, tenant, body string
	header                          http.Header
	noBody                          bool
}

const defaultBody = `{"amount":100}`

func (s *server) request(ctx context.Context, c call) *http.Request {
	if c.method == "" {
		c.method = http.MethodPost
	}
	if c.path == "" {
		c.path = "/charges"
	}
	if c.body == "" {
		c.body = defaultBody
	}
	var body io.Reader = strings.NewReader(c.body)
	if c.noBody {
		body = nil
	}
	r, err := http.NewRequestWithContext(ctx, c.method, s.url+c.path, body)
	if err != nil {
		panic(err)
	}
	if c.key != "" {
		r.Header.Set("Idempotency-Key", c.key)
	}
	if c.tenant != "" {
		r.Header.Set("X-Tenant", c.tenant)
	}
	r.Header.Set("Content-Type", "application/json")
	maps.Copy(r.Header, c.header)
	return r
}

// A reply is an answer that has been read to its end.
type reply struct {
	status          int
	header, trailer http.Header
	body            string
	problem         problem.Document
}

func (s *server) do(t testing.TB, c call) reply {
	t.Helper()
	got, err := s.try(t.Context(), c)
	require.NoError(t, err)
	return got
}

func (s *server) try(ctx context.Context, c call) (reply, error) {
	resp, err := s.client.Do(s.request(ctx, c))
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got := reply{status: resp.StatusCode, header: resp.Header, trailer: resp.Trailer, body: string(body)}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		err = errors.Join(err, json.Unmarshal(body, &got.problem))
	}
	return got, err
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// requireProblem checks a refusal: status, code, and what every refusal promises.
func requireProblem(t testing.TB, got reply, status int, code problem.Code) {
	t.Helper()
	require.Equal(t, code, got.problem.Code, "status %d, body %s", got.status, got.body)
	require.Equal(t, string(code), got.header.Get(problem.Header))
	require.Equal(t, status, got.status)
	require.Equal(t, status, got.problem.Status)
	require.NotEmpty(t, got.problem.Title)
	require.NotEmpty(t, got.problem.Type)
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	require.False(t, got.replayed())
	retryable := code == problem.InFlight || code == problem.StoreUnavailable || code == problem.ShuttingDown
	require.Equal(t, retryable, got.header.Get("Retry-After") != "", "Retry-After of %s", code)
}

// tenantScope takes the scope from a header: fine for a test, wrong for an API.
func tenantScope(r *http.Request) (string, error) {
	tenant := r.Header.Get("X-Tenant")
	switch tenant {
	case "":
		return "acme", nil
	case "unknown":
		return "", errors.New("no such tenant")
	case "empty":
		return "", nil
	}
	return tenant, nil
}

// newGuard returns a guard on a store that is shut down at the end of the test, which
// fails if work is left over.
func newGuard(t testing.TB, store idempotency.Store, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	opts = append([]idempotency.Option{idempotency.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
	g, err := idempotency.New(store, tenantScope, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Shutdown(context.Background()) })
	return g
}

// A counter is a handler that counts its runs and answers with their number.
type counter struct {
	runs    atomic.Int64
	handler func(w http.ResponseWriter, r *http.Request, run int64)
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.runs.Add(1)
	if c.handler != nil {
		c.handler(w, r, n)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/charges/1")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"run":`+string(rune('0'+n))+`}`)
}

// events collects what a guard reports.
type events struct {
	mu  sync.Mutex
	all []idempotency.Event
}

func (e *events) observe(_ context.Context, event idempotency.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) kinds() []idempotency.EventKind {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := make([]idempotency.EventKind, 0, len(e.all))
	for _, event := range e.all {
		kinds = append(kinds, event.Kind)
	}
	return kinds
}

func (e *events) errors() []error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, event := range e.all {
		if event.Err != nil {
			errs = append(errs, event.Err)
		}
	}
	return errs
}
