package echoidempotency_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
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
		fmt.Println(post(e, "/charges"))
	}
	// Output:
	// 402 {"message":"declined in attempt 1"} replayed: false
	// 402 {"message":"declined in attempt 1"} replayed: true
}

// post sends alice's request, always with the same key.
func post(h http.Handler, path string) string {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"amount":100}`))
	r.SetBasicAuth("alice", "alice's password")
	r.Header.Set("Idempotency-Key", "order-1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()), " replayed: ", w.Header().Get("Idempotent-Replayed") == "true")
}

// A handler fails after the first byte, by an error or a panic inside of a recovery. The outcome of the run is unknown.
func TestErrorBehindTheFirstByte(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("the other half") },
		"panic": func() error { panic("the other half") },
	} {
		t.Run(name, func(t *testing.T) {
			frametest.RequireHeld(t, func(guard *idempotency.Guard) http.Handler {
				e := echo.New()
				e.Logger = slog.New(slog.DiscardHandler)
				e.POST("/", func(c *echo.Context) error {
					_ = c.String(http.StatusCreated, "half an ans")
					return fail()
				}, echoidempotency.Middleware(guard), middleware.Recover())
				return e
			})
		})
	}
}
