package ginidempotency_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/internal/frametest"
)

func TestLostContext(t *testing.T) {
	t.Parallel()
	frametest.LostContext(t, func(timeout func(http.Handler) http.Handler, guard *idempotency.Guard, charge frametest.Charge) http.Handler {
		e := gin.New()
		e.POST("/charges", func(c *gin.Context) {
			timeout(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })).ServeHTTP(c.Writer, c.Request)
		}, ginidempotency.Middleware(guard), func(c *gin.Context) {
			if charge(c, func(text string) { c.String(http.StatusCreated, text) }) != nil {
				c.Status(http.StatusInternalServerError)
			}
		})
		return e
	})
}

// A handler may give its request a context that knows nothing of the run.
func TestContextThatHasLeftTheRun(t *testing.T) {
	t.Parallel()
	guarded, _ := newGuard(t)
	url := serve(t, guarded, func(c *gin.Context) {
		c.Request = c.Request.WithContext(context.Background())
		c.String(http.StatusCreated, "charged")
	})
	require.Equal(t, frametest.Answer{Status: 201, Body: "charged"}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 201, Body: "charged", Replayed: true}, frametest.Post(t, url))
}
