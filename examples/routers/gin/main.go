// Command gin protects routes of a gin engine, each with its own TTL.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"example.com/idempotency"
	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/examples/routers/shop"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	shop.Serve(routes)
}

func routes(guard *idempotency.Guard) http.Handler {
	engine := gin.New()
	// No gin.Recovery: a handler that panics with http.ErrAbortHandler wants to cut the
	// connection, and gin.Recovery would answer an empty 200. net/http recovers panics itself.
	engine.Use(authenticate)

	// answerErrors is inside the guard. Outside, it would answer when the run is over and
	// an empty 200 is recorded.
	engine.POST("/charges", ginidempotency.Middleware(guard), answerErrors, charge)
	engine.POST("/payouts", ginidempotency.Middleware(guard.With(
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
	// The request's context has the run; gin's does not.
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
