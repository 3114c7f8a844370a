package main

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"example.com/idempotency"
)

// idempotent turns a guard into an echo middleware.
//
// echo.WrapMiddleware is not enough. It gives the handler a response that writes into the
// guard's. But a handler that fails returns an error, which echo turns into an answer after
// all middleware has returned. The guard sees a handler that wrote nothing: it records and
// sends an empty 200, and the error comes too late. So this adapter answers the error inside
// the run.
func idempotent(guard *idempotency.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer, request := c.Response(), c.Request()
			guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				c.SetRequest(r)
				// Deferred, because after a panic an outer middleware answers. Outer
				// middleware also reads status and size from its own response.
				defer func() {
					c.SetResponse(outer)
					c.SetRequest(request)
				}()
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, request)
			// The handler's error has been answered. echo would answer it again.
			return nil
		}
	}
}
