package guardtest

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A Call is one request of a test. The zero value is a keyless POST /charges with a
// small JSON body.
type Call struct {
	// Tenant is the scope, see [TenantScope].
	Method, Path, Key, Tenant, Body string
	// Header is added to the fields that the request has anyway, or replaces them.
	Header http.Header
	// NoBody makes it a request without a body.
	NoBody bool
}

// DefaultBody is the body of a call that names none.
const DefaultBody = `{"amount":100}`

// A Reply is an answer that has been read to its end.
type Reply struct {
	Status          int
	Header, Trailer http.Header
	Body            string
	// Problem is the body, if that is a problem document.
	Problem problem.Document
}

// Replayed reports whether the guard says that it replays an answer.
func (r Reply) Replayed() bool { return r.Header.Get("Idempotent-Replayed") == "true" }

// RequireProblem checks a refusal: status, code, and what every refusal promises.
func RequireProblem(t testing.TB, got Reply, status int, code problem.Code) {
	t.Helper()
	require.Equal(t, code, got.Problem.Code, "status %d, body %s", got.Status, got.Body)
	require.Equal(t, status, got.Status)
	require.Equal(t, string(code), got.Header.Get(problem.Header))
	require.Equal(t, status, got.Problem.Status)
	require.NotEmpty(t, got.Problem.Title)
	require.NotEmpty(t, got.Problem.Type)
	require.Equal(t, "no-store", got.Header.Get("Cache-Control"))
	require.False(t, got.Replayed())
	require.Equal(t, code.Retryable(), got.Header.Get("Retry-After") != "", "Retry-After of %s", code)
}

// RequireProblems checks that the next n replies are one refusal.
func RequireProblems(t testing.TB, n int, replies <-chan Reply, status int, code problem.Code) {
	t.Helper()
	for range n {
		RequireProblem(t, <-replies, status, code)
	}
}

// RequireReplays checks that the next n replies are replays, and have the body.
func RequireReplays(t testing.TB, n int, replies <-chan Reply, body string) {
	t.Helper()
	for range n {
		got := <-replies
		require.True(t, got.Replayed(), "status %d, body %s", got.Status, got.Body)
		require.Equal(t, body, got.Body)
	}
}

// RequireOneRun checks that of the next n replies, which have the body, one is of a run and the others are replays.
func RequireOneRun(t testing.TB, n int, replies <-chan Reply, body string) {
	t.Helper()
	runs := 0
	for range n {
		got := <-replies
		require.Equal(t, body, got.Body)
		if !got.Replayed() {
			runs++
		}
	}
	require.Equal(t, 1, runs)
}

// RequireSameHeader compares all fields but those that are made anew for each answer.
func RequireSameHeader(t testing.TB, first, again http.Header) {
	t.Helper()
	first, again = first.Clone(), again.Clone()
	for _, name := range []string{"Date", "Idempotent-Replayed"} {
		first.Del(name)
		again.Del(name)
	}
	require.Equal(t, first, again)
}

// Twice sends the same request twice and checks that the handler ran once and that the
// second answer is the replay of the first.
func Twice(t *testing.T, serve func(http.Handler) *Server, h http.HandlerFunc, opts ...idempotency.Option) (first, again Reply) {
	t.Helper()
	runs := &Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) { h(w, r) }}
	s := serve(NewGuard(t, idempotency.NewMemoryStore(), opts...).Handler(runs))
	first, again = s.Do(t, Call{Key: "k"}), s.Do(t, Call{Key: "k"})
	require.EqualValues(t, 1, runs.Runs.Load())
	require.False(t, first.Replayed())
	RequireReplay(t, first, again)
	return first, again
}

// RequireReplay checks that again is first, told a second time.
func RequireReplay(t *testing.T, first, again Reply) {
	t.Helper()
	require.True(t, again.Replayed(), "status %d, body %s", again.Status, again.Body)
	require.Equal(t, first.Status, again.Status)
	require.Equal(t, first.Body, again.Body)
	require.Equal(t, first.Trailer, again.Trailer)
	a, b := first, again
	a.Header, b.Header = a.Header.Clone(), b.Header.Clone()
	for _, name := range []string{"Content-Length", "Trailer"} { // how it is sent, which a stream tells too late
		a.Header.Del(name)
		b.Header.Del(name)
	}
	RequireSameHeader(t, a.Header, b.Header)
}

// ExpiryHeader is the name that tests give to WithExpiryHeader: the one that package client looks for.
const ExpiryHeader = "Idempotency-TTL"
