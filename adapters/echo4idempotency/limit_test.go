package echo4idempotency_test

import (
	"testing"

	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echo4idempotency"
	"example.com/idempotency/internal/frametest"
)

func TestBodyLimitInFrontOfTheGuard(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(t, err)
	e := newEcho()
	e.POST("/charges", charged, middleware.BodyLimit("10B"), echo4idempotency.Middleware(guard))
	frametest.TooLarge(t, e)
}
