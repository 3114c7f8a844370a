package echo4idempotency_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"example.com/idempotency/adapters/echo4idempotency"
	"example.com/idempotency/internal/frametest"
)

// version is echo's, as the tests of frametest use it.
var version = &frametest.EchoVersion[echo.Context, echo.HandlerFunc, echo.MiddlewareFunc]{
	Module:     "echo4idempotency",
	Nil:        []func(){func() { echo4idempotency.Middleware(nil) }, func() { echo4idempotency.Scope(nil) }},
	Middleware: echo4idempotency.Middleware,
	Scope:      echo4idempotency.Scope,
	Find:       echo4idempotency.Context,
	New: func() frametest.EchoServer[echo.Context, echo.HandlerFunc, echo.MiddlewareFunc] {
		e := newEcho()
		return frametest.EchoServer[echo.Context, echo.HandlerFunc, echo.MiddlewareFunc]{
			Handler: e,
			Use:     e.Use,
			Add:     func(method, path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) { e.Add(method, path, h, m...) },
			Group: func(prefix string, m ...echo.MiddlewareFunc) func(string, string, echo.HandlerFunc) {
				g := e.Group(prefix, m...)
				return func(method, path string, h echo.HandlerFunc) { g.Add(method, path, h) }
			},
			OnError: func(answer func(echo.Context)) { e.HTTPErrorHandler = func(_ error, c echo.Context) { answer(c) } },
		}
	},
	Error:       func(status int, text string) error { return echo.NewHTTPError(status, text) },
	Wrap:        echo.WrapMiddleware,
	WrapHandler: echo.WrapHandler,
	Writer:      writer,
	Seen:        func(c echo.Context) (status int, size int64) { return c.Response().Status, c.Response().Size },
	Replace: func(c echo.Context, w http.ResponseWriter, r *http.Request) func() {
		outer := c.Response()
		c.SetRequest(r)
		c.SetResponse(echo.NewResponse(w, c.Echo()))
		return func() { c.SetResponse(outer) }
	},
}

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	return e
}

// TestAdapter is what holds for each framework; the rest of this file is about echo.
func TestAdapter(t *testing.T) {
	version.Adapter().Run(t)
}

// Beside a guard that only looks on, a handler can fail after it has answered, and middleware can have a
// writer of its own.
func TestShadowOfEchosWriter(t *testing.T) {
	version.ShadowOfWriter(t, func(c echo.Context) {
		c.Response().Writer = struct{ http.ResponseWriter }{c.Response().Writer}
	})
}

// writer is that of the response.
func writer(c echo.Context) http.ResponseWriter { return c.Response() }

func TestLostContext(t *testing.T) {
	version.LostContext(t)
}

func TestSilentRoutes(t *testing.T) {
	version.SilentRoutes(t)
}

func TestTemporaryFiles(t *testing.T) {
	version.TemporaryFiles(t)
}

func TestBodyLimitInFrontOfTheGuard(t *testing.T) {
	version.BodyLimit(t, middleware.BodyLimit("10B"))
}
