package echoidempotency_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/echoidempotency"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// serve serves one route behind the given middleware, outermost first.
func serve(t *testing.T, e *echo.Echo, handler echo.HandlerFunc, outside ...echo.MiddlewareFunc) string {
	e.Logger = slog.New(slog.DiscardHandler)
	e.POST("/charges", handler, outside...)
	return frametest.ServeHTTP(t, e) + "/charges"
}

// newGuard returns a guard as a middleware, and its events.
func newGuard(t *testing.T, opts ...idempotency.Option) (echo.MiddlewareFunc, func(idempotency.EventKind) []idempotency.Event) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope, opts...)
	return echoidempotency.Middleware(guard), events
}

func declined(*echo.Context) error {
	return echo.NewHTTPError(http.StatusUnprocessableEntity, "declined")
}

// Middleware outside the guard sees the answer, and no error that it would answer again.
func TestOuterMiddlewareSeesTheAnswer(t *testing.T) {
	t.Parallel()
	var statuses []int
	var sizes []int64
	observe := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			request, response := c.Request(), c.Response()
			err := next(c)
			require.Same(t, request, c.Request())
			require.Same(t, response, c.Response())
			outer, unwrapped := echo.UnwrapResponse(c.Response())
			require.NoError(t, unwrapped)
			statuses, sizes = append(statuses, outer.Status), append(sizes, outer.Size)
			return err
		}
	}
	answered := 0
	e := echo.New()
	e.HTTPErrorHandler = func(c *echo.Context, _ error) { // it does not look whether there is an answer
		answered++
		_ = c.String(http.StatusUnprocessableEntity, "no")
	}
	guarded, _ := newGuard(t)
	url := serve(t, e, declined, observe, guarded)
	require.Equal(t, frametest.Answer{Status: 422, Body: "no"}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 422, Body: "no", Replayed: true}, frametest.Post(t, url))
	require.Equal(t, 1, answered)
	require.Equal(t, []int{422, 422}, statuses)
	require.Equal(t, []int64{2, 2}, sizes)
}

// After a panic, outer middleware finds its own response and can answer.
func TestPanicIsAnsweredOutside(t *testing.T) {
	t.Parallel()
	recoverer := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			request, response := c.Request(), c.Response()
			defer func() {
				if recover() != nil {
					require.Same(t, request, c.Request())
					require.Same(t, response, c.Response())
					err = errors.New("panicked")
				}
			}()
			return next(c)
		}
	}
	guarded, _ := newGuard(t)
	url := serve(t, echo.New(), func(*echo.Context) error { panic("bug") }, recoverer, guarded)
	require.Equal(t, http.StatusInternalServerError, frametest.Post(t, url).Status)
}

// Without a run, the error goes to middleware outside, as if there were no guard.
func TestErrorWithoutARunIsReturned(t *testing.T) {
	t.Parallel()
	var got error
	observe := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			got = next(c)
			return got
		}
	}
	guarded, _ := newGuard(t, idempotency.WithMethods(http.MethodPut))
	require.Equal(t, http.StatusUnprocessableEntity, frametest.Post(t, serve(t, echo.New(), declined, observe, guarded)).Status)
	require.ErrorContains(t, got, "declined")
}

// A route behind two guards on one store runs once, behind the outer one.
func TestNestedMiddleware(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	url := serve(t, echo.New(), declined, echoidempotency.Middleware(guard), echoidempotency.Middleware(guard))
	first, retry := frametest.Post(t, url), frametest.Post(t, url)
	require.Equal(t, http.StatusUnprocessableEntity, first.Status)
	require.True(t, retry.Replayed)
	require.Equal(t, first.Body, retry.Body)
	require.Len(t, events(idempotency.EventNested), 1)
}

// The router answers 404 itself, and may know the route tomorrow. A handler's 404 is an answer.
func TestNoRouteIsNotRecorded(t *testing.T) {
	t.Parallel()
	group := func(e *echo.Echo, guarded echo.MiddlewareFunc) { e.Group("/group", guarded).GET("/charges", declined) }
	everywhere := func(e *echo.Echo, guarded echo.MiddlewareFunc) {
		e.Use(guarded)
		e.GET("/charges", declined)
	}
	for _, c := range []struct {
		routes func(*echo.Echo, echo.MiddlewareFunc)
		path   string
		status int
	}{{group, "/group/nowhere", 404}, {everywhere, "/nowhere", 404}, {everywhere, "/charges", 405}} {
		guarded, _ := newGuard(t)
		e := echo.New()
		c.routes(e, guarded)
		url := frametest.ServeHTTP(t, e) + c.path
		first := frametest.Post(t, url)
		require.Equal(t, c.status, first.Status, c.path)
		require.Equal(t, first, frametest.Post(t, url), c.path)
	}
	guarded, _ := newGuard(t)
	missing := serve(t, echo.New(), func(*echo.Context) error { return echo.ErrNotFound }, guarded)
	require.Equal(t, http.StatusNotFound, frametest.Post(t, missing).Status)
	require.True(t, frametest.Post(t, missing).Replayed)
}

// A refusal can have the format of the program's own errors.
func TestErrorWriterFindsTheContext(t *testing.T) {
	t.Parallel()
	guarded, _ := newGuard(t, idempotency.WithStrictKeys(true),
		idempotency.WithErrorWriter(func(_ http.ResponseWriter, r *http.Request, p problem.Document) {
			c, ok := echoidempotency.Context(r.Context())
			require.True(t, ok)
			require.NoError(t, c.JSON(p.Status, map[string]any{"error": p.Code}))
		}))
	url := serve(t, echo.New(), declined, guarded)
	require.Equal(t, frametest.Answer{Status: 400, Body: `{"error":"key-invalid"}`}, frametest.Post(t, url))
}

// A guard that needs echo's context refuses requests that come without it, and says why.
func TestScopeNeedsTheMiddleware(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, echoidempotency.Scope(func(*echo.Context) (string, error) { return "tenant", nil }))
	require.Equal(t, http.StatusForbidden, frametest.Post(t, frametest.ServeHTTP(t, guard.Handler(echo.New()))+"/charges").Status)
	refused := events(idempotency.EventRefused)
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0].Err, "echoidempotency.Middleware")
	require.Panics(t, func() { echoidempotency.Middleware(nil) })
	require.Panics(t, func() { echoidempotency.Scope(nil) })
}

// With echo.WrapMiddleware the error of a handler comes too late. The guard knows its handlers, and
// refuses each request with a key before anything runs. The log says what to do.
func TestWrapMiddlewareIsRefused(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	runs := 0
	count := func(*echo.Context) error {
		runs++
		return nil
	}
	got := frametest.Post(t, serve(t, echo.New(), count, echo.WrapMiddleware(guard.Handler)))
	require.Equal(t, http.StatusServiceUnavailable, got.Status)
	require.Contains(t, got.Body, problem.StoreUnavailable)
	require.Zero(t, runs)
	refused := events(idempotency.EventRefused)
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0].Err, "echoidempotency")

	// What echo answers in time is protected: a handler of net/http, and the whole server.
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	handler := func(t *testing.T) string { return serve(t, echo.New(), echo.WrapHandler(h)) }
	server := func(t *testing.T) string {
		e := echo.New()
		serve(t, e, func(c *echo.Context) error { return c.NoContent(http.StatusCreated) })
		return frametest.ServeHTTP(t, guard.Handler(http.HandlerFunc(e.ServeHTTP))) + "/charges"
	}
	for _, start := range []func(*testing.T) string{handler, server} {
		url := start(t)
		frametest.Post(t, url)
		require.Equal(t, frametest.Answer{Status: http.StatusCreated, Replayed: true}, frametest.Post(t, url))
	}

	// Behind another middleware, its handlers are not known. Then the first loss is reported.
	guard, events = frametest.NewGuard(t, frametest.HeaderScope)
	between := func(next http.Handler) http.Handler { return guard.Handler(http.HandlerFunc(next.ServeHTTP)) }
	frametest.Post(t, serve(t, echo.New(), declined, echo.WrapMiddleware(between)))
	require.NotEmpty(t, events(idempotency.EventSilent))
}

// With a guard that only looks on, handlers and middleware have the response that they would have
// without it, and errors go to middleware outside.
func TestShadowChangesNothing(t *testing.T) {
	t.Parallel()
	maps := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if next(c) != nil {
				return echo.NewHTTPError(http.StatusTeapot, "mapped")
			}
			return nil
		}
	}
	passes := func(next echo.HandlerFunc) echo.HandlerFunc { return next }
	for name, test := range map[string]struct {
		outside echo.MiddlewareFunc
		handler echo.HandlerFunc
		status  int // as the guard sees it
	}{
		"answer":       {passes, func(c *echo.Context) error { return c.String(http.StatusCreated, "done") }, http.StatusCreated},
		"nothing":      {passes, func(*echo.Context) error { return nil }, 0},
		"declined":     {passes, declined, http.StatusUnprocessableEntity},
		"other error":  {passes, func(*echo.Context) error { return http.ErrNotSupported }, http.StatusInternalServerError},
		"mapped error": {maps, declined, http.StatusUnprocessableEntity},
		"after a bit": {maps, func(c *echo.Context) error {
			return errors.Join(c.String(http.StatusAccepted, "a bit"), http.ErrNotSupported)
		}, http.StatusAccepted},
		"another writer": {func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				c.SetResponse(struct{ wrapped }{wrapped{c.Response()}})
				return next(c)
			}
		}, func(c *echo.Context) error { return c.String(http.StatusCreated, "done") }, http.StatusCreated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := func(guarded echo.MiddlewareFunc) (answer frametest.Answer, seen string) {
				observe := func(next echo.HandlerFunc) echo.HandlerFunc {
					return func(c *echo.Context) error {
						err := next(c)
						seen = fmt.Sprint(err, status(c))
						return err
					}
				}
				handler := func(c *echo.Context) error {
					_, _ = io.ReadAll(c.Request().Body)
					return test.handler(c)
				}
				return frametest.Post(t, serve(t, echo.New(), handler, observe, test.outside, guarded)), seen
			}
			guarded, events := newGuard(t, idempotency.WithShadow(true))
			want, wantSeen := ask(passes)
			got, seen := ask(guarded)
			require.Equal(t, want, got)
			require.Equal(t, wantSeen, seen)
			require.Eventually(t, func() bool { return len(events(idempotency.EventShadow)) == 1 }, 10*time.Second, time.Millisecond)
			e := events(idempotency.EventShadow)[0]
			require.Equal(t, idempotency.EventRun, e.Would)
			require.NoError(t, e.Err)
			require.Equal(t, test.status, e.Status)
		})
	}
}

func status(c *echo.Context) string {
	r, err := echo.UnwrapResponse(c.Response())
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.Status, r.Committed, r.Size)
}

// A wrapped is a writer of another middleware.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A guard that only looks on knows that the router's own answers are not recorded.
func TestShadowOfNoRoute(t *testing.T) {
	t.Parallel()
	guarded, events := newGuard(t, idempotency.WithShadow(true))
	e := echo.New()
	read := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			_, _ = io.ReadAll(c.Request().Body)
			return next(c)
		}
	}
	e.Use(guarded, read)
	url := frametest.ServeHTTP(t, e) + "/nowhere"
	for n := 1; n <= 2; n++ {
		require.Equal(t, http.StatusNotFound, frametest.Post(t, url).Status)
		require.Eventually(t, func() bool { return len(events(idempotency.EventShadow)) == n }, 10*time.Second, time.Millisecond)
		e := events(idempotency.EventShadow)[n-1]
		require.Equal(t, idempotency.EventRun, e.Would)
		require.NoError(t, e.Err)
	}
}
