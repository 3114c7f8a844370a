package ginidempotency_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// Called as a function, the middleware returns before the handler runs. oapi-codegen's servers do that.
func TestMiddlewareCalledAsAFunctionIsMisplaced(t *testing.T) {
	t.Parallel()
	called := func(guarded gin.HandlerFunc, h gin.HandlerFunc) gin.HandlerFunc {
		return func(c *gin.Context) {
			guarded(c)
			if c.IsAborted() {
				return
			}
			h(c)
		}
	}
	for name, before := range map[string][]gin.HandlerFunc{"alone": nil, "behind others": {func(c *gin.Context) { c.Next() }}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			guard, events := frametest.NewGuard(t, frametest.HeaderScope)
			runs := 0
			e := gin.New()
			e.Use(before...)
			e.POST("/charges", called(ginidempotency.Middleware(guard), func(c *gin.Context) {
				runs++
				c.Status(http.StatusCreated)
			}))
			url := frametest.ServeHTTP(t, e) + "/charges"
			for range 3 {
				got := frametest.Post(t, url)
				require.Equal(t, http.StatusInternalServerError, got.Status)
				require.Contains(t, got.Body, problem.Misplaced)
			}
			require.Zero(t, runs)
			require.Len(t, events(event.Refused), 3)
			require.ErrorContains(t, events(event.Refused)[0].Err, "as a function")

			// What the guard has nothing to do with goes on.
			res, err := http.Post(url, "text/plain", nil)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusCreated, res.StatusCode)
			require.Equal(t, 1, runs)
		})
	}
}

// Where a handler is left, it does not matter who calls the middleware, nor whether the handler says anything.
func TestMiddlewareWithAHandlerBehindItIsNotMisplaced(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	guarded := ginidempotency.Middleware(guard)
	runs := 0
	e := gin.New()
	e.POST("/charges", func(c *gin.Context) { guarded(c) }, func(*gin.Context) { runs++ })
	elsewhere, _ := frametest.NewGuard(t, frametest.HeaderScope)
	e.Use(ginidempotency.Middleware(elsewhere))
	url := frametest.ServeHTTP(t, e)
	require.Equal(t, http.StatusOK, frametest.Post(t, url+"/charges").Status)
	require.Equal(t, http.StatusOK, frametest.Post(t, url+"/charges").Status)
	require.Equal(t, 1, runs)
	require.Equal(t, http.StatusNotFound, frametest.Post(t, url+"/nowhere").Status)
	require.Empty(t, events(event.Refused))
}
