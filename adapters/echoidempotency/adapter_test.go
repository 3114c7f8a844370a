package echoidempotency_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echoidempotency"
	"example.com/idempotency/internal/frametest"
)

// version is echo's, as the tests of frametest use it.
var version = &frametest.EchoVersion[*echo.Context, echo.HandlerFunc, echo.MiddlewareFunc]{
	Module:     "echoidempotency",
	Nil:        []func(){func() { echoidempotency.Middleware(nil) }, func() { echoidempotency.Scope(nil) }},
	Middleware: echoidempotency.Middleware,
	Scope:      echoidempotency.Scope,
	Find:       echoidempotency.Context,
	New: func() frametest.EchoServer[*echo.Context, echo.HandlerFunc, echo.MiddlewareFunc] {
		e := newEcho()
		return frametest.EchoServer[*echo.Context, echo.HandlerFunc, echo.MiddlewareFunc]{
			Handler: e,
			Use:     e.Use,
			Add:     func(method, path string, h echo.HandlerFunc, m ...echo.MiddlewareFunc) { e.Add(method, path, h, m...) },
			Group: func(prefix string, m ...echo.MiddlewareFunc) func(string, string, echo.HandlerFunc) {
				g := e.Group(prefix, m...)
				return func(method, path string, h echo.HandlerFunc) { g.Add(method, path, h) }
			},
			OnError: func(answer func(*echo.Context)) { e.HTTPErrorHandler = func(c *echo.Context, _ error) { answer(c) } },
		}
	},
	Error:       func(status int, text string) error { return echo.NewHTTPError(status, text) },
	Wrap:        echo.WrapMiddleware,
	WrapHandler: echo.WrapHandler,
	Writer:      (*echo.Context).Response,
	Seen: func(c *echo.Context) (status int, size int64) {
		r, err := echo.UnwrapResponse(c.Response())
		if err != nil {
			panic(err)
		}
		return r.Status, r.Size
	},
	Replace: func(c *echo.Context, w http.ResponseWriter, r *http.Request) func() {
		outer := c.Response()
		c.SetRequest(r)
		c.SetResponse(echo.NewResponse(w, c.Logger()))
		return func() { c.SetResponse(outer) }
	},
}

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e
}

// TestAdapter is what holds for each framework; the rest of this file is about echo.
func TestAdapter(t *testing.T) {
	version.Adapter().Run(t)
}

// Beside a guard that only looks on, a handler can fail after it has answered, and middleware can have a
// writer of its own.
func TestShadowOfEchosWriter(t *testing.T) {
	version.ShadowOfWriter(t, func(c *echo.Context) {
		c.SetResponse(struct{ wrapped }{wrapped{c.Response()}})
	})
}

// A wrapped is a writer of another middleware.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

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
	version.BodyLimit(t, middleware.BodyLimit(10))
}

// echo drops the status of an error behind an answer. A middleware outside that holds the status back, as one that
// compresses does until it knows the size, never hears of it.
func TestErrorBehindAnAnswerIsNotSent(t *testing.T) {
	guard, _ := frametest.NewGuard(t, idempotency.SharedScope)
	e := echo.New()
	runs := 0
	e.POST("/charges", func(c *echo.Context) error {
		runs++
		return errors.Join(c.String(http.StatusCreated, "done"), errors.New("the mail is not sent"))
	}, middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000}), echoidempotency.Middleware(guard.With(idempotency.WithRecovery(idempotency.Hold))))
	url := frametest.ServeHTTP(t, e) + "/charges"
	first, _ := frametest.PostBody(t, url, `{"amount":100}`, map[string]string{"Accept-Encoding": "gzip"})
	require.Equal(t, frametest.Answer{Status: http.StatusCreated, Body: "done"}, first)
	require.Equal(t, http.StatusConflict, frametest.Post(t, url).Status, "the handler has failed")
	require.Equal(t, 1, runs)
}
