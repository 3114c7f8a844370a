package idempotency_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/webhook"
)

// A body whose reading the test watches.
type watchedBody struct {
	io.Reader
	reads int
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.reads++
	return b.Reader.Read(p)
}

func (b *watchedBody) Close() error { return nil }

func TestDeclaredHugeBodyIsRefusedUnread(t *testing.T) {
	t.Parallel()
	store := idempotency.NewMemoryStore()
	h := &guardtest.Counter{}
	body := &watchedBody{Reader: strings.NewReader("x")}
	rec := guardtest.Post(guardtest.NewGuard(t, store).Handler(h), body, 1<<30)
	require.Equal(t, http.StatusRequestEntityTooLarge, rec.Code)
	require.Zero(t, body.reads)
	require.Zero(t, h.Runs.Load())
	require.Zero(t, store.Len())
}

// Memory for a body grows with what arrives of it, and not with what is announced.
func TestBodyTakesMemoryAsItArrives(t *testing.T) {
	t.Parallel()
	const length = 1 << 20
	sent := strings.Repeat("0123456789abcde\n", length/16)
	body := &steppingBody{rest: sent}
	h := &guardtest.Counter{Handler: func(_ http.ResponseWriter, r *http.Request, _ int64) {
		got, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, sent, string(got))
	}}
	rec := guardtest.Post(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h), body, length)
	require.Equal(t, http.StatusOK, rec.Code)
	require.EqualValues(t, 1, h.Runs.Load())
	for _, s := range body.steps {
		require.LessOrEqual(t, s.room, max(32<<10, s.arrived+2), "after %d bytes", s.arrived)
	}
}

// A steppingBody arrives in pieces, and notes how much room there was for each.
type steppingBody struct {
	rest    string
	arrived int
	steps   []struct{ arrived, room int }
}

func (b *steppingBody) Read(p []byte) (int, error) {
	b.steps = append(b.steps, struct{ arrived, room int }{b.arrived, len(p)})
	if b.rest == "" {
		return 0, io.EOF
	}
	n := copy(p, b.rest[:min(1000, len(b.rest))])
	b.rest, b.arrived = b.rest[n:], b.arrived+n
	return n, nil
}

func (b *steppingBody) Close() error { return nil }

// A form that an outer handler has parsed is no longer in the body: it would reach the
// handler past the fingerprint.
func TestBodyThatWasReadOutsideIsRefused(t *testing.T) {
	t.Parallel()
	const form = "amount=100"
	store := idempotency.NewMemoryStore()
	h := &guardtest.Counter{}
	guarded := guardtest.NewGuard(t, store).Handler(h)
	for name, length := range map[string]int64{"declared": int64(len(form)), "chunked": -1} {
		for putBack, want := range map[bool]int{false: http.StatusBadRequest, true: http.StatusCreated} {
			t.Run(fmt.Sprint(name, " put back ", putBack), func(t *testing.T) {
				rec := guardtest.Post(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
					_ = r.PostFormValue("csrf")
					if putBack {
						r.Body = io.NopCloser(strings.NewReader(form))
					}
					guarded.ServeHTTP(w, r)
				}), io.NopCloser(strings.NewReader(form)), length)
				require.Equal(t, want, rec.Code, rec.Body)
			})
		}
	}
	require.EqualValues(t, 1, h.Runs.Load())
	require.Equal(t, 1, store.Len())
}

// The limit of an outer handler is a limit too, and not an unreadable body.
func TestOuterBodyLimitIsTooLarge(t *testing.T) {
	t.Parallel()
	guardtest.OnEachTransport(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		store := idempotency.NewMemoryStore()
		h := &guardtest.Counter{}
		requireBodyLimit(t, serve(http.MaxBytesHandler(guardtest.NewGuard(t, store).Handler(h), 10)), store, h, 10)
	})
}

// requireBodyLimit checks that a body over the limit is refused, whether or not its length
// is declared, and touches nothing, and that one at the limit is not.
func requireBodyLimit(t *testing.T, s *guardtest.Server, store *idempotency.MemoryStore, h *guardtest.Counter, limit int) {
	t.Helper()
	got := s.Do(t, guardtest.Call{Key: "declared", Body: strings.Repeat("x", limit+1)})
	guardtest.RequireProblem(t, got, http.StatusRequestEntityTooLarge, problem.BodyTooLarge)

	r := s.Request(t.Context(), guardtest.Call{Key: "chunked"})
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat("x", limit+1))), -1
	resp, err := s.Client.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)

	require.Zero(t, h.Runs.Load())
	require.Zero(t, store.Len())
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "fits", Body: strings.Repeat("x", limit)}).Status)
}

func TestBodyThatDoesNotArriveClaimsNothing(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("connection broke")
	failing := func(err error) io.ReadCloser {
		return io.NopCloser(io.MultiReader(strings.NewReader("{"), errReader{err}))
	}
	tests := map[string]struct {
		body   io.ReadCloser
		length int64
		status int
	}{
		"broken, declared":     {failing(errBroken), 10, http.StatusBadRequest},
		"broken, chunked":      {failing(errBroken), -1, http.StatusBadRequest},
		"shorter than it says": {io.NopCloser(strings.NewReader("{")), 10, http.StatusBadRequest},
		"longer than it says":  {io.NopCloser(strings.NewReader("{}")), 1, http.StatusBadRequest},
		"too slow, declared":   {failing(os.ErrDeadlineExceeded), 10, http.StatusRequestTimeout},
		"too slow, chunked":    {failing(os.ErrDeadlineExceeded), -1, http.StatusRequestTimeout},
		"too slow in the end":  {failing(os.ErrDeadlineExceeded), 1, http.StatusRequestTimeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := idempotency.NewMemoryStore()
			h := &guardtest.Counter{}
			rec := guardtest.Post(guardtest.NewGuard(t, store).Handler(h), tt.body, tt.length)
			require.Equal(t, tt.status, rec.Code)
			require.Contains(t, rec.Body.String(), string(problem.BodyUnreadable))
			require.NotContains(t, rec.Body.String(), errBroken.Error())
			require.Zero(t, h.Runs.Load())
			require.Zero(t, store.Len())
		})
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// A body that drips in holds no claim: another request with the key is served meanwhile.
func TestSlowBodyHoldsNoClaim(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		store := idempotency.NewMemoryStore()
		h := &guardtest.Counter{}
		s := serve(guardtest.NewGuard(t, store).Handler(h))
		in, out := io.Pipe()
		r := s.Request(t.Context(), guardtest.Call{Key: "k"})
		r.Body, r.ContentLength = in, -1
		slow := make(chan guardtest.Reply, 1)
		go func() {
			resp, err := s.Client.Do(r)
			if err != nil {
				slow <- guardtest.Reply{Body: err.Error()}
				return
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			slow <- guardtest.Reply{Status: resp.StatusCode, Header: resp.Header, Trailer: resp.Trailer, Body: string(body)}
		}()
		_, err := io.WriteString(out, guardtest.DefaultBody[:5]) // returns when the transport has taken it
		require.NoError(t, err)
		require.Zero(t, store.Len())
		fast := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, fast.Status)
		_, err = io.WriteString(out, guardtest.DefaultBody[5:])
		require.NoError(t, err)
		require.NoError(t, out.Close())
		guardtest.RequireReplay(t, fast, <-slow)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

func TestCallersRequestIsNotChanged(t *testing.T) {
	t.Parallel()
	guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		r.Method, r.Pattern, r.ContentLength, r.Form = "CHANGED", "/changed", 99, nil
	}))
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("body"))
	r.Header.Set("Idempotency-Key", "k")
	before := *r
	guarded.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, before.Method, r.Method)
	require.Equal(t, before.Pattern, r.Pattern)
	require.Equal(t, before.ContentLength, r.ContentLength)
	require.Equal(t, before.Context(), r.Context())
	require.Equal(t, before.Body, r.Body)
}

// With a key function, a request without a key passes, one that cannot be read is refused,
// and the refusal shows neither the key nor the reason.
func TestKeyFunction(t *testing.T) {
	t.Parallel()
	h := &guardtest.Counter{}
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithKeyFunc(webhook.JSONKey("id")))
	s := guardtest.ServeRecorder(t, guard.Handler(h))
	send := func(body string) guardtest.Reply { return s.Do(t, guardtest.Call{Body: body}) }

	require.False(t, send(`{"id":"evt_1"}`).Replayed())
	require.True(t, send(`{"id":"evt_1"}`).Replayed())
	require.EqualValues(t, 1, h.Runs.Load())
	guardtest.RequireProblem(t, send(`{"id":"evt_1","more":1}`), http.StatusConflict, problem.KeyReused)
	require.False(t, send(`{"id":"evt_2"}`).Replayed())

	require.False(t, send(`{}`).Replayed())
	require.False(t, send(`{}`).Replayed())
	require.EqualValues(t, 4, h.Runs.Load())
	s = guardtest.ServeRecorder(t, guard.With(idempotency.WithRequired(true)).Handler(h))
	guardtest.RequireProblem(t, send(`{}`), http.StatusBadRequest, problem.KeyMissing)

	got := send(`{"id":["secret"]}`)
	guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.KeyInvalid)
	require.NotContains(t, got.Body, "secret")
	guardtest.RequireProblem(t, send(`{"id":"`+strings.Repeat("x", 256)+`"}`), http.StatusBadRequest, problem.KeyInvalid)
	require.EqualValues(t, 4, h.Runs.Load())
}
