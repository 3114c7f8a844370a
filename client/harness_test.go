package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency/internal/guardtest"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/leaktest"
	"example.com/idempotency/internal/redistest"
)

const (
	keyField = "Idempotency-Key"
	place    = "http://server.test/charges"
)

// A sent request is what arrived at a server.
type sent struct {
	method, body string
	key          []string
	length       int64
}

// A script is a RoundTripper that answers each request with its next answer, the last one
// again and again, and keeps accounts of what it got and of the bodies that it gave away.
type script struct {
	answers []answer

	mu     sync.Mutex
	got    []sent
	bodies []*countedBody
}

// An answer is one of a script: an error, a function, or a status with header and body.
type answer struct {
	err    error
	do     func(*http.Request) (*http.Response, error)
	status int
	header map[string]string
	body   string
	chunks bool // the length is not declared
}

// silent is no answer until the request is given up.
var silent = answer{do: func(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}}

func answering(answers ...answer) *script { return &script{answers: answers} }

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	got := sent{method: r.Method, key: append(r.Header[keyField], r.Header[strings.ToLower(keyField)]...), length: r.ContentLength}
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil {
			return nil, err
		}
		got.body = string(b)
	}
	s.mu.Lock()
	a := s.answers[min(len(s.got), len(s.answers)-1)]
	s.got = append(s.got, got)
	s.mu.Unlock()
	switch {
	case a.do != nil:
		return a.do(r)
	case a.err != nil:
		return nil, a.err
	}
	resp := a.response(r)
	body := &countedBody{Reader: resp.Body}
	resp.Body = body
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.mu.Unlock()
	return resp, nil
}

func (a answer) response(r *http.Request) *http.Response {
	resp := &http.Response{
		StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header),
		Body: io.NopCloser(strings.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}
	if a.chunks {
		resp.ContentLength = -1
	}
	for name, value := range a.header {
		resp.Header.Set(name, value)
	}
	return resp
}

// A countedBody knows whether it was read to its end and closed.
type countedBody struct {
	io.Reader
	drained, closed atomic.Bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.drained.Store(true)
	}
	return n, err
}

func (b *countedBody) Close() error {
	b.closed.Store(true)
	return nil
}

// requests returns what has arrived so far.
func (s *script) requests() []sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sent(nil), s.got...)
}

// requireOneKey checks that all requests of a script were the same, and returns their key.
func (s *script) requireOneKey(t testing.TB, attempts int) string {
	t.Helper()
	got := s.requests()
	require.Len(t, got, attempts)
	for _, r := range got {
		require.Equal(t, got[0], r)
	}
	require.Len(t, got[0].key, 1)
	require.NotEmpty(t, got[0].key[0])
	return got[0].key[0]
}

// requireBodiesDone checks that all answers were read to their end and closed.
func (s *script) requireBodiesDone(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.bodies {
		require.True(t, b.drained.Load(), "answer %d was not read to its end", i+1)
		require.True(t, b.closed.Load(), "answer %d was not closed", i+1)
	}
}

// newTransport returns a transport that logs nothing, to servers of this library.
func newTransport(t testing.TB, base http.RoundTripper, opts ...client.Option) *client.Transport {
	t.Helper()
	return newStranger(t, base, append([]client.Option{client.WithServer(profile.Guard(), "*")}, opts...)...)
}

// newStranger returns a transport that logs nothing and knows no server.
func newStranger(t testing.TB, base http.RoundTripper, opts ...client.Option) *client.Transport {
	t.Helper()
	transport, err := client.New(base, append([]client.Option{client.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	return transport
}

func post(ctx context.Context, url, body string) *http.Request {
	return request(ctx, http.MethodPost, url, strings.NewReader(body))
}

func request(ctx context.Context, method, url string, body io.Reader) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		panic(err)
	}
	return r
}

// A reply is an answer that has been read to its end.
type reply struct {
	status int
	body   string
	resp   *http.Response
}

// send sends a request through a transport and reads the answer.
func send(transport http.RoundTripper, r *http.Request) (reply, error) {
	resp, err := transport.RoundTrip(r)
	if err != nil {
		if resp != nil {
			panic("a response and an error")
		}
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, string(body), resp}, err
}

// answered sends a request that must get an answer.
func answered(t testing.TB, transport http.RoundTripper, r *http.Request) reply {
	t.Helper()
	got, err := send(transport, r)
	require.NoError(t, err)
	return got
}

// fails sends a request that must end with an error.
func fails(t testing.TB, transport http.RoundTripper, r *http.Request, want error, message ...any) {
	t.Helper()
	_ = failsWith(t, transport, r, want, message...)
}

// failsWith is fails, and returns the error.
func failsWith(t testing.TB, transport http.RoundTripper, r *http.Request, want error, message ...any) error {
	t.Helper()
	_, err := send(transport, r)
	require.ErrorIs(t, err, want, message...)
	return err
}

// failure returns the *client.Error in err.
func failure(t testing.TB, err error) *client.Error {
	t.Helper()
	var e *client.Error
	require.ErrorAs(t, err, &e)
	return e
}

// refused is the answer with a problem document.
func refused(status int, code string, header ...string) answer {
	a := answer{status: status, body: `{"title":"t","status":` + strconv.Itoa(status) + `,"code":"` + code + `"}`}
	a.header = map[string]string{"Content-Type": "application/problem+json; charset=utf-8"}
	for i := 0; i < len(header); i += 2 {
		a.header[header[i]] = header[i+1]
	}
	return a
}

// newGuard returns a guard that is shut down at the end of the test.
func newGuard(t testing.TB, store idempotency.Store, opts ...idempotency.Option) *idempotency.Guard {
	t.Helper()
	return guardtest.NewGuardOf(t, store, idempotency.SharedScope, opts...)
}

// serve starts a server that says nothing of the connections that tests break.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// bubble runs a subtest beside the others, with a fake clock.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, f)
	})
}

// newBase returns an http.Transport whose connections end with the test.
func newBase(t testing.TB) *http.Transport {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// events collects what a transport reports.
type events struct {
	mu  sync.Mutex
	all []client.Event
}

func (e *events) observe(_ context.Context, event client.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) of(kind client.EventKind) []client.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []client.Event
	for _, event := range e.all {
		if event.Kind == kind {
			found = append(found, event)
		}
	}
	return found
}

// quick makes pauses that tests need not notice.
var quick = client.WithBackoff(time.Nanosecond, time.Nanosecond)

// once hides everything of a body but that it can be read once.
func once(body string) io.Reader { return struct{ io.Reader }{bytes.NewReader([]byte(body))} }

// serveTLS starts a server whose certificate nobody knows, and returns its URL.
func serveTLS(t testing.TB) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

// TestMain fails the package if a test leaves a goroutine behind that runs code of the
// library, or waits for an answer.
func TestMain(m *testing.M) {
	redistest.AtOnce(8)
	code := m.Run()
	for _, pkg := range []string{"example.com/idempotency", "net/http.(*persistConn)"} {
		if left := leaktest.Left(pkg, 5*time.Second); code == 0 && left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}
