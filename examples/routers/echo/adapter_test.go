package main

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/examples/routers/shop/shoptest"
)

func TestRoutesHaveTheirOwnTTL(t *testing.T) {
	shoptest.RequireTTLs(t, routes)
}

// server serves one route with the given middleware, outermost first.
func server(handler echo.HandlerFunc, adapters ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.Use(authenticate)
	e.POST("/charges", handler, adapters...)
	return e
}

// With echo.WrapMiddleware the error of a handler comes too late, and its client gets an
// empty 200.
func TestWrapMiddlewareRecordsErrorsAsEmpty200(t *testing.T) {
	e := server(charge, echo.WrapMiddleware(shoptest.NewGuard(t).Handler))
	require.Equal(t, shoptest.Answer{Status: http.StatusOK}, shoptest.Post(t, e, "/charges", "key", 0))
	require.Equal(t, shoptest.Answer{Status: http.StatusOK, Replayed: true}, shoptest.Post(t, e, "/charges", "key", 0))
}

// Middleware outside the guard sees the answer, and no error that it would answer again.
func TestOuterMiddlewareSeesTheAnswer(t *testing.T) {
	var statuses []int
	var sizes []int64
	observe := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, response := c.Request(), c.Response()
			err := next(c)
			require.Same(t, request, c.Request())
			require.Same(t, response, c.Response())
			statuses, sizes = append(statuses, c.Response().Status), append(sizes, c.Response().Size)
			return err
		}
	}
	e := server(charge, observe, idempotent(shoptest.NewGuard(t)))
	// This error handler does not check whether there is an answer already.
	answered := 0
	e.HTTPErrorHandler = func(_ error, c echo.Context) {
		answered++
		_ = c.String(http.StatusUnprocessableEntity, "no")
	}
	for range 2 {
		require.Equal(t, "no", shoptest.Post(t, e, "/charges", "key", 0).Body)
	}
	require.Equal(t, 1, answered)
	require.Equal(t, []int{422, 422}, statuses)
	require.Equal(t, []int64{2, 2}, sizes)
}

// After a panic, outer middleware finds its own response and can answer.
func TestPanicIsAnsweredOutside(t *testing.T) {
	recoverer := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				if recover() != nil {
					err = errors.New("panicked")
				}
			}()
			return next(c)
		}
	}
	e := server(func(echo.Context) error { panic("bug") }, recoverer, idempotent(shoptest.NewGuard(t)))
	require.Equal(t, http.StatusInternalServerError, shoptest.Post(t, e, "/charges", "key", 100).Status)
}
