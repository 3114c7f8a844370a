package echoidempotency_test

import (
	"testing"

	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echoidempotency"
	"example.com/idempotency/internal/frametest"
)

func TestBodyLimitInFrontOfTheGuard(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(t, err)
	e := newEcho()
	e.POST("/charges", charged, middleware.BodyLimit(10), echoidempotency.Middleware(guard))
	frametest.TooLarge(t, e)
}
