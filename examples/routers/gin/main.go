// Command gin protects routes of a gin engine, each with its own TTL.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"example.com/idempotency"
	"example.com/idempotency/examples/routers/shop"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	shop.Serve(routes)
}

func routes(guard *idempotency.Guard) http.Handler {
	engine := gin.New()
	// No gin.Recovery: it turns a handler that cuts the connection, by panicking with
	// http.ErrAbortHandler, into an empty 200. net/http recovers panics by itself.
	engine.Use(authenticate)

	// What makes an answer of errors is inside the guard. From outside it would answer
	// when the run is over, and an empty 200 recorded.
	engine.POST("/charges", idempotent(guard), answerErrors, charge)
	engine.POST("/payouts", idempotent(guard.With(
		idempotency.WithRequired(true),
		idempotency.WithTTL(7*24*time.Hour),
	)), answerErrors, charge)
	return engine
}

func authenticate(c *gin.Context) {
	r, err := shop.Authenticate(c.Request)
	if err != nil {
		c.AbortWithStatusJSON(http.StatusUnauthorized, gin.H{"error": err.Error()})
		return
	}
	c.Request = r
}

// answerErrors answers for handlers that leave their error in the context.
func answerErrors(c *gin.Context) {
	c.Next()
	if err := c.Errors.Last(); err != nil && !c.Writer.Written() {
		c.JSON(http.StatusUnprocessableEntity, gin.H{"error": err.Error()})
	}
}

func charge(c *gin.Context) {
	var order shop.Order
	if err := c.ShouldBindJSON(&order); err != nil {
		c.AbortWithStatusJSON(http.StatusBadRequest, gin.H{"error": err.Error()})
		return
	}
	// The run is in the request's context, not in gin's.
	receipt, err := shop.Charge(c.Request.Context(), order)
	switch {
	case errors.Is(err, shop.ErrDeclined):
		c.AbortWithStatusJSON(http.StatusPaymentRequired, gin.H{"error": err.Error()})
		return
	case err != nil:
		_ = c.Error(err)
		return
	}
	c.Header("Location", fmt.Sprintf("%s/%d", c.Request.URL.Path, receipt.Run))
	c.JSON(http.StatusCreated, receipt)
}
