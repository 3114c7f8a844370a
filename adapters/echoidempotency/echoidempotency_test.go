package echoidempotency_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echoidempotency"
	"example.com/idempotency/internal/frametest"
)

// TestFrame sends the requests of frametest.
func TestFrame(t *testing.T) {
	version.Frame(t, middleware.Recover())
}

// TestFrameAroundTheServer sends them to a server that knows nothing of the guard around it.
func TestFrameAroundTheServer(t *testing.T) {
	version.FrameAround(t)
}

func ExampleMiddleware() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), echoidempotency.Scope(func(c *echo.Context) (string, error) {
		return echo.ContextGet[string](c, "user")
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	e := echo.New()
	e.Use(middleware.Recover(), middleware.BasicAuth(func(c *echo.Context, user, password string) (bool, error) {
		c.Set("user", user)
		return user == "alice" && password == "alice's password", nil // yours compares in constant time
	}))
	e.POST("/charges", func(c *echo.Context) error {
		op, _ := idempotency.FromContext(c.Request().Context())
		return echo.NewHTTPError(http.StatusPaymentRequired, fmt.Sprintf("declined in attempt %d", op.Attempt()))
	}, echoidempotency.Middleware(guard))

	for range 2 {
		fmt.Println(frametest.Alice(e, "/charges"))
	}
	// Output:
	// 402 {"message":"declined in attempt 1"} replayed: false
	// 402 {"message":"declined in attempt 1"} replayed: true
}

// A handler fails after the first byte, by an error or a panic inside of a recovery. The outcome of the run is unknown.
func TestErrorBehindTheFirstByte(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("the other half") },
		"panic": func() error { panic("the other half") },
	} {
		t.Run(name, func(t *testing.T) { version.HalfAnswer(t, fail, middleware.Recover()) })
	}
}
