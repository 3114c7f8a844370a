package main

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"example.com/idempotency"
)

// idempotent makes a guard an echo middleware.
//
// echo.WrapMiddleware is not enough. It gives the handler a response that writes into
// the guard's, but a handler that fails returns its error, and echo makes an answer of
// it when all middleware has returned. To the guard such a handler has said nothing: an
// empty 200 is recorded and sent, and the error comes too late. So the error has to
// become an answer inside the run.
func idempotent(guard *idempotency.Guard) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer, request := c.Response(), c.Request()
			guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				c.SetRequest(r)
				// Deferred, because after a panic an outer middleware answers, and
				// because outer middleware reads status and size off its own response.
				defer func() {
					c.SetResponse(outer)
					c.SetRequest(request)
				}()
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, request)
			// Not the handler's error: it is answered, and would be answered again.
			return nil
		}
	}
}
