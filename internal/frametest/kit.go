package frametest

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/problem"
)

// What the tests of a framework need beside Run.

// An Answer is what a client got.
type Answer struct {
	Status   int
	Body     string
	Replayed bool
}

// Post sends a small JSON body to a server, always with the same key, as the tenant "tenant" and
// with the basic authentication of alice.
func Post(t testing.TB, url string) Answer {
	t.Helper()
	return told(send(t, url, small, "tenant", "key"))
}

// PostBody is Post with another body and further fields, and returns the header of the answer, too.
func PostBody(t testing.TB, url, body string, fields map[string]string) (Answer, http.Header) {
	t.Helper()
	c := Case{Method: http.MethodPost, Body: body, Header: small.Header.Clone()}
	for name, value := range fields {
		c.Header.Set(name, value)
	}
	got := send(t, url, c, "tenant", "key")
	return told(got), got.header
}

// PostSettled is Post after a run whose client has its answer, or has lost its connection, a moment
// before the run is settled.
func PostSettled(t testing.TB, url string) Answer {
	t.Helper()
	return told(sendSettled(t, url, small, "key"))
}

var small = Case{Method: http.MethodPost, Body: `{"amount":100}`, Header: http.Header{
	"Content-Type": {"application/json"}, "Authorization": {"Basic YWxpY2U6c2VjcmV0"}, // alice:secret
}}

func told(got answer) Answer {
	return Answer{got.status, strings.TrimSpace(got.body), got.header.Get("Idempotent-Replayed") == "true"}
}

// NewGuard returns a guard on a memory store, and a function that returns its events of a kind.
func NewGuard(t testing.TB, scope idempotency.ScopeFunc, opts ...idempotency.Option) (*idempotency.Guard, func(event.Kind) []event.Event) {
	t.Helper()
	var seen events
	opts = append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)), idempotency.WithObserver(seen.observe))
	guard, err := idempotency.New(idempotency.NewMemoryStore(), scope, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = guard.Shutdown(t.Context()) })
	return guard, func(kind event.Kind) (of []event.Event) {
		for _, e := range seen.list() {
			if e.Kind == kind {
				of = append(of, e)
			}
		}
		return of
	}
}

// LastShadow waits for the nth report of a guard that only looks on, and returns it.
func LastShadow(t testing.TB, events func(event.Kind) []event.Event, n int) event.Event {
	t.Helper()
	require.Eventually(t, func() bool { return len(events(event.Shadow)) == n }, 10*time.Second, time.Millisecond)
	return events(event.Shadow)[n-1]
}

// ServeHTTP starts a server for an http.Handler until the end of the test, and returns its URL.
func ServeHTTP(t testing.TB, h http.Handler) string {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// RequireHeld requires that the run of a POST to / is of unknown outcome, and holds its key. The function makes the
// server, with a guard that holds.
func RequireHeld(t *testing.T, serve func(*idempotency.Guard) http.Handler) {
	t.Helper()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope,
		idempotency.WithRecovery(idempotency.Hold), idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	h := serve(guard)
	for _, code := range []string{"", string(problem.OutcomeUnknown)} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header.Set("Idempotency-Key", "k")
		h.ServeHTTP(w, r)
		require.Equal(t, code, w.Header().Get(problem.Header))
	}
}

// SilentRoutes requires that a handler of net/http that says nothing is reported once for each route, whether
// the framework names its routes or not. The function starts a server that has the handler at POST /quiet
// and at POST /silent/ followed by a number.
func SilentRoutes(t *testing.T, serve func(t testing.TB, h http.Handler) (url string)) {
	t.Helper()
	guard, events := NewGuard(t, HeaderScope)
	url := serve(t, guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, path := range []string{"/quiet", "/quiet", "/silent/1", "/silent/2"} {
		require.Equal(t, http.StatusOK, send(t, url+path, small, "tenant", rand.Text()).status)
	}
	require.Len(t, events(event.Silent), 2)
}
