// Command echo protects routes of an echo server, each with its own TTL.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echoidempotency"
	"example.com/idempotency/examples/routers/shop"
)

func main() { shop.Serve(routes) }

func routes(guard *idempotency.Guard) http.Handler {
	e := echo.New()
	e.Use(middleware.Recover(), authenticate)

	e.POST("/charges", charge, echoidempotency.Middleware(guard))
	e.POST("/payouts", charge, echoidempotency.Middleware(guard.With(
		idempotency.WithRequired(true),
		idempotency.WithTTL(7*24*time.Hour),
	)))
	return e
}

func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		r, err := shop.Authenticate(c.Request())
		if err != nil {
			return echo.NewHTTPError(http.StatusUnauthorized, err.Error())
		}
		c.SetRequest(r)
		return next(c)
	}
}

func charge(c *echo.Context) error {
	var order shop.Order
	if err := c.Bind(&order); err != nil {
		return err
	}
	receipt, err := shop.Charge(c.Request().Context(), order)
	switch {
	case errors.Is(err, shop.ErrDeclined):
		return echo.NewHTTPError(http.StatusPaymentRequired, err.Error())
	case err != nil:
		return echo.NewHTTPError(http.StatusUnprocessableEntity, err.Error())
	}
	c.Response().Header().Set("Location", fmt.Sprintf("%s/%d", c.Request().URL.Path, receipt.Run))
	return c.JSON(http.StatusCreated, receipt)
}
