package echoidempotency_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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

// TestFrame sends the requests of frametest. The guard protects a route, or a group of them.
func TestFrame(t *testing.T) {
	t.Parallel()
	frametest.Run(t, frametest.Framework{
		Serve: func(t testing.TB, app *frametest.App, guard *idempotency.Guard) string {
			return frametest.ServeHTTP(t, server(app, func(opts ...idempotency.Option) echo.MiddlewareFunc {
				if guard == nil {
					return pass
				}
				return echoidempotency.Middleware(guard.With(opts...))
			}, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					c.Response().Header().Set("X-Request-Id", app.RequestID())
					c.Response().Header().Set("Vary", "Origin")
					c.Set("tenant", c.Request().Header.Get(frametest.TenantHeader))
					return next(c)
				}
			}, middleware.Recover()))
		},
		FailsLate: true,
		Scope:     echoidempotency.Scope(func(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "tenant") }),
		Route:     "POST /reply/:name",
		Differs:   frametest.HalfAnswers("the error handler"),
	})
}

func pass(next echo.HandlerFunc) echo.HandlerFunc { return next }

// TestFrameAroundTheServer sends them to a server that knows nothing of the guard around it.
func TestFrameAroundTheServer(t *testing.T) {
	t.Parallel()
	frametest.Run(t, frametest.Around(func(app *frametest.App) http.Handler {
		return server(app, func(...idempotency.Option) echo.MiddlewareFunc { return pass })
	}))
}

// server has the routes of frametest, with middleware outside the guards.
func server(app *frametest.App, protect func(...idempotency.Option) echo.MiddlewareFunc, outside ...echo.MiddlewareFunc) *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(outside...)

	reply := func(c *echo.Context) error {
		r := app.Begin(c.Request().Context(), c.Param("name"))
		maps.Copy(c.Response().Header(), r.Header)
		defer func() { maps.Copy(c.Response().Header(), r.Trailer) }()
		switch location := r.Header.Get("Location"); {
		case location != "" && r.Status/100 == 3:
			return c.Redirect(r.Status, location)
		case r.Body == "":
			return c.NoContent(r.Status)
		case r.Header.Get("Content-Type") == "":
			c.Response().WriteHeader(r.Status)
			_, err := io.WriteString(c.Response(), r.Body)
			return err
		default:
			return c.Blob(r.Status, r.Header.Get("Content-Type"), []byte(r.Body))
		}
	}
	replies := e.Group("/reply", protect())
	replies.POST("/:name", reply)
	replies.PATCH("/:name", reply)
	replies.GET("/:name", reply)
	e.POST("/held/:name", reply, protect(idempotency.WithRecovery(idempotency.Hold)))
	e.POST("/required/:name", reply, protect(idempotency.WithRequired(true)))

	e.POST("/error/:name", func(c *echo.Context) error {
		r := app.Begin(c.Request().Context(), c.Param("name"))
		if r.Status == 0 {
			return errors.New(r.Body)
		}
		return echo.NewHTTPError(r.Status, r.Body)
	}, protect())
	e.POST("/panic/:name", func(c *echo.Context) error {
		r := app.Begin(c.Request().Context(), c.Param("name"))
		if r.Body != "" {
			_, _ = io.WriteString(c.Response(), r.Body)
		}
		panic(r.Panic)
	}, protect())
	e.POST("/stream/:name", func(c *echo.Context) error {
		r := app.Begin(c.Request().Context(), c.Param("name"))
		maps.Copy(c.Response().Header(), r.Header)
		for _, chunk := range r.Chunks {
			_, _ = io.WriteString(c.Response(), chunk)
			_ = http.NewResponseController(c.Response()).Flush()
			r.Pause()
		}
		if r.Status != 0 {
			return echo.NewHTTPError(r.Status, "too late")
		}
		return nil
	}, protect())
	e.POST("/request/:name", func(c *echo.Context) error {
		app.Begin(c.Request().Context(), c.Param("name"))
		r := c.Request()
		body, _ := io.ReadAll(r.Body)
		session := ""
		if cookie, err := c.Cookie("session"); err == nil {
			session = cookie.Value
		}
		return c.JSON(http.StatusOK, frametest.Seen{
			Method: r.Method, Path: r.URL.Path, Name: c.Param("name"), Query: c.QueryString(), Cookie: session,
			Type: r.Header.Get("Content-Type"), Agent: r.UserAgent(), Many: r.Header["X-Many"], Length: r.ContentLength, Body: string(body),
		})
	}, protect())
	e.POST("/form", func(c *echo.Context) error {
		app.Begin(c.Request().Context(), "form")
		content := []byte(nil)
		if header, err := c.FormFile("f"); err == nil {
			f, _ := header.Open()
			content, _ = io.ReadAll(f)
			_ = f.Close()
		}
		return c.String(http.StatusOK, fmt.Sprintf("%s,%s,%s", c.FormValue("a"), c.FormValue("b"), content))
	}, protect())
	e.POST("/bind", func(c *echo.Context) error {
		app.Begin(c.Request().Context(), "bind")
		var order struct {
			Amount int `json:"amount"`
		}
		if err := c.Bind(&order); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, order)
	}, protect())
	return e
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
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("the other half") },
		"panic": func() error { panic("the other half") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
