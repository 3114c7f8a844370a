package echo4idempotency_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echo4idempotency"
	"example.com/idempotency/internal/frametest"
)

// TestAdapter is what holds for each framework; the rest of this file is about echo.
func TestAdapter(t *testing.T) {
	adapter().Run(t)
}

// A link is echo's context, as the tests of frametest use it.
type link struct {
	echo.Context
	next echo.HandlerFunc
}

func (l link) Next() error { return l.next(l.Context) }

func (l link) Answer(status int, body string) error { return l.String(status, body) }

func (l link) ReadBody() { _, _ = io.ReadAll(l.Request().Body) }

func (l link) Seen() (status int, size int64) { return l.Response().Status, l.Response().Size }

func (l link) Own() []any { return []any{l.Request(), l.Response()} }

// asMiddleware returns a link, or a guard, as a middleware of echo.
func asMiddleware(of any) echo.MiddlewareFunc {
	switch of := of.(type) {
	case *idempotency.Guard:
		return echo4idempotency.Middleware(of)
	case frametest.Link:
		return func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { return of(link{c, next}) }
		}
	default:
		return of.(echo.MiddlewareFunc)
	}
}

func handler(of frametest.Link) echo.HandlerFunc {
	return func(c echo.Context) error { return of(link{Context: c}) }
}

// writer is that of the response.
func writer(c echo.Context) http.ResponseWriter { return c.Response() }

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	return e
}

func serve(t testing.TB, onError frametest.Link, chain ...any) string {
	e := newEcho()
	if onError != nil {
		e.HTTPErrorHandler = func(_ error, c echo.Context) { _ = onError(link{Context: c}) }
	}
	last := len(chain) - 1
	var outside []echo.MiddlewareFunc
	for _, of := range chain[:last] {
		outside = append(outside, asMiddleware(of))
	}
	e.POST("/charges", handler(chain[last].(frametest.Link)), outside...)
	return frametest.ServeHTTP(t, e) + "/charges"
}

func charged(c echo.Context) error { return c.String(http.StatusCreated, "charged") }

func adapter() frametest.Adapter {
	return frametest.Adapter{
		Module: "echo4idempotency",
		Serve:  serve,
		Everywhere: func(t testing.TB, chain ...any) string {
			e := newEcho()
			for _, of := range chain {
				e.Use(asMiddleware(of))
			}
			e.GET("/charges", charged)
			return frametest.ServeHTTP(t, e)
		},
		Group: func(t testing.TB, chain ...any) string {
			e := newEcho()
			var all []echo.MiddlewareFunc
			for _, of := range chain {
				all = append(all, asMiddleware(of))
			}
			e.Group("/group", all...).GET("/charges", charged)
			return frametest.ServeHTTP(t, e)
		},
		Error: func(status int, text string) error { return echo.NewHTTPError(status, text) },
		Find: func(ctx context.Context) (frametest.Context, bool) {
			c, ok := echo4idempotency.Context(ctx)
			return link{Context: c}, ok
		},
		Scope: func() idempotency.ScopeFunc {
			return echo4idempotency.Scope(func(echo.Context) (string, error) { return "tenant", nil })
		},
		Bare:      func() http.Handler { return echo.New() },
		Nil:       []func(){func() { echo4idempotency.Middleware(nil) }, func() { echo4idempotency.Scope(nil) }},
		Misplaced: misplaced,
		Placed: map[string]func(testing.TB, *idempotency.Guard) string{
			"around a handler of net/http": func(t testing.TB, guard *idempotency.Guard) string {
				e := newEcho()
				e.POST("/charges", echo.WrapHandler(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusCreated)
				}))))
				return frametest.ServeHTTP(t, e) + "/charges"
			},
			"around the server": func(t testing.TB, guard *idempotency.Guard) string {
				e := newEcho()
				e.POST("/charges", charged)
				return frametest.ServeHTTP(t, guard.Handler(http.HandlerFunc(e.ServeHTTP))) + "/charges"
			},
		},
	}
}

// misplaced are what people write around echo's next.
var misplaced = frametest.EchoMisplaced(echo.WrapMiddleware, writer, func(c echo.Context, w http.ResponseWriter, r *http.Request) func() {
	outer := c.Response()
	c.SetRequest(r)
	c.SetResponse(echo.NewResponse(w, c.Echo()))
	return func() { c.SetResponse(outer) }
})

// Beside a guard that only looks on, a handler can fail after it has answered, and middleware can have a
// writer of its own.
func TestShadowOfEchosWriter(t *testing.T) {
	mapped := func(c frametest.Context) error {
		if c.Next() != nil {
			return echo.NewHTTPError(http.StatusTeapot, "mapped")
		}
		return nil
	}
	t.Run("after a bit", func(t *testing.T) {
		adapter().Shadow(t, http.StatusAccepted, mapped, func(c frametest.Context) error {
			return errors.Join(c.Answer(http.StatusAccepted, "a bit"), http.ErrNotSupported)
		})
	})
	t.Run("another writer", func(t *testing.T) {
		wrap := func(c frametest.Context) error {
			r := c.(link).Response()
			r.Writer = struct{ http.ResponseWriter }{r.Writer}
			return c.Next()
		}
		adapter().Shadow(t, http.StatusCreated, wrap, func(c frametest.Context) error { return c.Answer(http.StatusCreated, "done") })
	})
}

func TestLostContext(t *testing.T) {
	frametest.EchoLostContext(t, echo.WrapMiddleware, writer, func(timeout echo.MiddlewareFunc, guard *idempotency.Guard, charge echo.HandlerFunc) http.Handler {
		e := newEcho()
		e.POST("/charges", charge, timeout, echo4idempotency.Middleware(guard))
		return e
	})
}

func TestSilentRoutes(t *testing.T) {
	frametest.SilentRoutes(t, func(t testing.TB, h http.Handler) string {
		e := newEcho()
		e.POST("/quiet", echo.WrapHandler(h))
		e.POST("/silent/:id", echo.WrapHandler(h))
		return frametest.ServeHTTP(t, e)
	})
}

func TestBodyLimitInFrontOfTheGuard(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(t, err)
	e := newEcho()
	e.POST("/charges", charged, middleware.BodyLimit("10B"), echo4idempotency.Middleware(guard))
	frametest.TooLarge(t, e)
}
