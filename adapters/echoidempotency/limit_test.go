package echoidempotency_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echoidempotency"
)

// A body above the BodyLimit in front of the guard is too large, also if it does not say how large it is.
func TestBodyLimitInFrontOfTheGuard(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(t, err)
	e := newEcho()
	e.POST("/charges", charged, middleware.BodyLimit(10), echoidempotency.Middleware(guard))
	for _, length := range []int64{11, -1} {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader("12345678901"))
		r.ContentLength = length
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, "length %d: %s", length, w.Body)
	}
}
