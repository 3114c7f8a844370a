package idempotency_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
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
		require.LessOrEqual(t, s.room, max(64<<10, 7*s.arrived), "after %d bytes", s.arrived)
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

// A body that an outer handler has read would reach the handler past the fingerprint, in a form
// or a context. The refusal says so, however the outer handler has left the request. What was put
// back is served.
func TestBodyThatWasReadOutsideIsRefused(t *testing.T) {
	const form, text = "application/x-www-form-urlencoded", "application/json; charset=utf-8"
	parseForm := func(r *http.Request) { _ = r.PostFormValue("csrf") }
	readAll := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for name, tt := range map[string]struct {
		contentType string
		outer       func(r *http.Request)
	}{
		"form parsed":              {form, parseForm},
		"form parsed, and no body": {form, func(r *http.Request) { parseForm(r); r.Body, r.ContentLength = http.NoBody, 0 }},
		"form read":                {form, readAll},
		"JSON read":                {text, readAll},
		"JSON read, and closed":    {text, func(r *http.Request) { readAll(r); _ = r.Body.Close() }},
		"JSON read, and no body":   {text, func(r *http.Request) { readAll(r); r.Body = http.NoBody }},
		"XML read":                 {"application/xml", readAll},
		"no type read":             {"", readAll},
		"multipart by its reader":  {"multipart/form-data; boundary=x", func(r *http.Request) { _, _ = r.MultipartReader(); readAll(r) }},
	} {
		for _, declared := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", declared ", declared), func(t *testing.T) {
				guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
					store := idempotency.NewMemoryStore()
					h := &guardtest.Counter{}
					seen := &guardtest.Events{}
					guarded := guardtest.NewGuard(t, store, idempotency.WithObserver(seen.Observe)).Handler(h)
					s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("X-Put-Back") == "" {
							tt.outer(r)
						} else if body, err := io.ReadAll(r.Body); err == nil {
							r.Body = io.NopCloser(bytes.NewReader(body))
						}
						guarded.ServeHTTP(w, r)
					}))
					send := func(body string, header http.Header) guardtest.Reply {
						return sendBody(t, s, body, declared, http.Header{"Content-Type": {tt.contentType}}, header)
					}
					got := send("amount=100", nil)
					guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.BodyUnreadable)
					require.Contains(t, got.Problem.Detail, "a handler in front of the guard has read it")
					require.NotContains(t, got.Body, "oapi-codegen")
					require.ErrorContains(t, seen.All()[0].Err, "oapi-codegen", "the log names the mistake")
					require.Zero(t, store.Len())
					require.Zero(t, h.Runs.Load())
					require.Equal(t, http.StatusCreated, send("amount=100", http.Header{"X-Put-Back": {"1"}}).Status)
					guardtest.RequireProblem(t, send("amount=999", http.Header{"X-Put-Back": {"1"}}), http.StatusConflict, problem.KeyReused)
				})
			})
		}
	}
}

// sendBody sends a keyed request whose body is declared or not.
func sendBody(t *testing.T, s *guardtest.Server, body string, declared bool, headers ...http.Header) guardtest.Reply {
	t.Helper()
	c := guardtest.Call{Key: "k", Body: body, Header: http.Header{}}
	for _, h := range headers {
		maps.Copy(c.Header, h)
	}
	r := s.Request(t.Context(), c)
	if !declared {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
	}
	resp, err := s.Client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	got := guardtest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(answer)}
	if resp.Header.Get("Content-Type") == problem.ContentType {
		require.NoError(t, json.Unmarshal(answer, &got.Problem))
	}
	return got
}

// A handler that decompresses a body and leaves its declared length is noticed too, whether the
// body has become longer or shorter.
func TestBodyOfAnotherLengthThanDeclaredIsRefused(t *testing.T) {
	h := &guardtest.Counter{}
	guarded := guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h)
	for key, replaced := range map[string]string{"shorter": "{}", "longer": guardtest.DefaultBody + "\n"} {
		for _, corrected := range []bool{false, true} {
			s := guardtest.ServeHTTP1(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader(replaced))
				if corrected {
					r.ContentLength = -1
				}
				guarded.ServeHTTP(w, r)
			}))
			got := s.Do(t, guardtest.Call{Key: key})
			if corrected {
				require.Equal(t, http.StatusCreated, got.Status)
				continue
			}
			guardtest.RequireProblem(t, got, http.StatusBadRequest, problem.BodyUnreadable)
			require.Contains(t, got.Problem.Detail, "decompressed")
		}
	}
	require.EqualValues(t, 2, h.Runs.Load())
}

// A request without a body is one, however it says so.
func TestEmptyBodyIsServed(t *testing.T) {
	guardtest.Each(t, map[string]*http.Request{
		"declared":            {ContentLength: 0, Header: http.Header{"Content-Length": {"0"}, "Content-Type": {"application/json"}}},
		"no length, no body":  {ContentLength: 0, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody},
		"a form of no fields": {ContentLength: 0, Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, PostForm: url.Values{}},
	}, func(t *testing.T, r *http.Request) {
		h := &guardtest.Counter{}
		in := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", nil)
		in.Header, in.Body, in.ContentLength, in.PostForm = r.Header, r.Body, r.ContentLength, r.PostForm
		in.Header.Set("Idempotency-Key", "k")
		rec := httptest.NewRecorder()
		guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(h).ServeHTTP(rec, in)
		require.Equal(t, http.StatusCreated, rec.Code, rec.Body)
		require.EqualValues(t, 1, h.Runs.Load())
	})
}

// The limit of an outer handler is a limit too, and not an unreadable body.
func TestOuterBodyLimitIsTooLarge(t *testing.T) {
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
	errBroken := errors.New("connection broke")
	failing := func(err error) io.ReadCloser {
		return io.NopCloser(io.MultiReader(strings.NewReader("{"), errReader{err}))
	}
	type row struct {
		body   io.ReadCloser
		length int64
		status int
	}
	guardtest.Each(t, map[string]row{
		"broken, declared":     {failing(errBroken), 10, http.StatusBadRequest},
		"broken, chunked":      {failing(errBroken), -1, http.StatusBadRequest},
		"shorter than it says": {io.NopCloser(strings.NewReader("{")), 10, http.StatusBadRequest},
		"longer than it says":  {io.NopCloser(strings.NewReader("{}")), 1, http.StatusBadRequest},
		"too slow, declared":   {failing(os.ErrDeadlineExceeded), 10, http.StatusRequestTimeout},
		"too slow, chunked":    {failing(os.ErrDeadlineExceeded), -1, http.StatusRequestTimeout},
		"too slow in the end":  {failing(os.ErrDeadlineExceeded), 1, http.StatusRequestTimeout},
	}, func(t *testing.T, tt row) {
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

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// A body that drips in holds no claim: another request with the key is served meanwhile.
func TestSlowBodyHoldsNoClaim(t *testing.T) {
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

// The memory of a body is used again for the next. So a handler that leaves a goroutine behind, which
// reads on, gets an error and never a byte of another request.
func TestBodyEndsWithItsHandler(t *testing.T) {
	keyless := func(*http.Request, []byte) (string, error) { return "", nil }
	full := idempotency.NewMemoryStore(idempotency.WithMaxEntries(1))
	guardtest.Post(guardtest.NewGuard(t, full).Handler(&guardtest.Counter{}), http.NoBody, 0)
	guardtest.Each(t, map[string]*idempotency.Guard{
		"of a run":        guardtest.NewGuard(t, idempotency.NewMemoryStore()),
		"without a key":   guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithKeyFunc(keyless)),
		"without a store": guardtest.NewGuard(t, full, idempotency.WithFailOpen(true)),
	}, func(t *testing.T, g *idempotency.Guard) {
		const size = 4 << 10
		var bodies []io.Reader
		var others sync.WaitGroup
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			own := make([]byte, 1)
			_, err := r.Body.Read(own)
			assert.NoError(t, err)
			bodies = append(bodies, r.Body)
			others.Go(func() {
				piece := make([]byte, 1)
				for {
					if _, err := r.Body.Read(piece); err != nil {
						return
					}
					if piece[0] != own[0] {
						t.Errorf("a request of %q has read %q", own, piece)
						return
					}
				}
			})
			w.WriteHeader(http.StatusCreated)
		}))
		for i := range 100 {
			r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(strings.Repeat(string(rune('a'+i%26)), size)))
			r.Header.Set("Idempotency-Key", strconv.Itoa(i))
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			require.Equal(t, http.StatusCreated, rec.Code)
		}
		others.Wait()
		for _, body := range bodies {
			_, err := body.Read(make([]byte, 1))
			require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
		}
	})
}

func TestCallersRequestIsNotChanged(t *testing.T) {
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

	// The key may be in the body. So a request without one is read and limited too, and must
	// have a scope.
	s = guardtest.ServeRecorder(t, guard.With(idempotency.WithLimits(idempotency.Limits{RequestBody: 1})).Handler(h))
	guardtest.RequireProblem(t, send(`{}`), http.StatusRequestEntityTooLarge, problem.BodyTooLarge)
	stranger := guardtest.Call{Body: "1", Tenant: "unknown"}
	guardtest.RequireProblem(t, s.Do(t, stranger), http.StatusForbidden, problem.ScopeUnresolved)
}
