package fiberidempotency_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/basicauth"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
	"example.com/idempotency/internal/frametest"
)

// TestFrame sends the requests of frametest. The guard protects a route, or a group of them.
func TestFrame(t *testing.T) {
	frametest.Run(t, frametest.Framework{
		Serve: func(t testing.TB, app *frametest.App, guard *idempotency.Guard) string {
			return listen(t, server(app, func(opts ...idempotency.Option) fiber.Handler {
				if guard == nil {
					return fiber.Ctx.Next
				}
				return fiberidempotency.Middleware(guard.With(opts...))
			}))
		},
		Scope:        fiberidempotency.Scope(func(c fiber.Ctx) (string, error) { return fiber.Locals[string](c, "tenant"), nil }),
		Route:        "POST /error/:name",
		WholeStreams: true,
		Differs: map[string][]frametest.Allowed{
			"trailer": {
				{Between: frametest.First, Part: "trailer X-Sum", Why: "The answer is sent with its length, and fasthttp sends trailers only after chunks."},
				whole,
			},
			"stream":        {whole},
			"stream-failed": {whole},
		},
	})
}

var whole = frametest.Allowed{Between: frametest.First, Part: "header Content-Length", Why: "A stream is read to its end, and then sent with its length."}

// listen serves an app until the end of the test, and returns its URL.
func listen(t testing.TB, app *fiber.App) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		require.NoError(t, app.Shutdown())
		require.NoError(t, <-done)
	})
	return "http://" + l.Addr().String()
}

// server has the routes of frametest.
func server(app *frametest.App, protect func(...idempotency.Option) fiber.Handler) *fiber.App {
	f := fiber.New(fiber.Config{StrictRouting: true})
	f.Use(func(c fiber.Ctx) error {
		c.Set("X-Request-Id", app.RequestID())
		c.Set("Vary", "Origin")
		c.SetContext(frametest.WithOuter(c.Context(), c.Response().Header.Add))
		c.Locals("tenant", c.Get(frametest.TenantHeader))
		return c.Next()
	}, recover.New())

	reply := func(c fiber.Ctx) error {
		r := app.Begin(c.Context(), c.Params("name"))
		for name, values := range r.Header {
			c.Response().Header.Del(name)
			for _, value := range values {
				c.Response().Header.Add(name, value)
			}
		}
		c.Status(r.Status)
		switch location := r.Header.Get("Location"); {
		case location != "" && r.Status/100 == 3:
			return c.Redirect().Status(r.Status).To(location)
		case r.Trailer != nil:
			err := c.SendStream(strings.NewReader(r.Body))
			c.Set("X-Sum", r.Trailer.Get("X-Sum"))
			return err
		case r.Body == "":
			return nil
		default:
			return c.SendString(r.Body)
		}
	}
	replies := f.Group("/reply", protect())
	replies.Post("/:name", reply)
	replies.Patch("/:name", reply)
	replies.Get("/:name", reply)
	f.Post("/held/:name", protect(idempotency.WithRecovery(idempotency.Hold)), reply)
	f.Post("/required/:name", protect(idempotency.WithRequired(true)), reply)

	f.Post("/error/:name", protect(), func(c fiber.Ctx) error {
		r := app.Begin(c.Context(), c.Params("name"))
		if r.Status == 0 {
			return errors.New(r.Body)
		}
		return fiber.NewError(r.Status, r.Body)
	})
	f.Post("/panic/:name", protect(), func(c fiber.Ctx) error {
		r := app.Begin(c.Context(), c.Params("name"))
		_ = c.SendString(r.Body)
		panic(r.Panic)
	})
	f.Post("/stream/:name", protect(), func(c fiber.Ctx) error {
		r := app.Begin(c.Context(), c.Params("name"))
		c.Set("Content-Type", r.Header.Get("Content-Type"))
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for _, chunk := range r.Chunks {
				_, _ = w.WriteString(chunk)
				_ = w.Flush()
				r.Pause()
			}
		})
	})
	f.Post("/request/:name", protect(), func(c fiber.Ctx) error {
		app.Begin(c.Context(), c.Params("name"))
		many := []string(nil)
		for _, value := range c.Request().Header.PeekAll("X-Many") {
			many = append(many, string(value))
		}
		return c.JSON(frametest.Seen{
			Method: c.Method(), Path: c.Path(), Name: c.Params("name"), Query: string(c.Request().URI().QueryString()), Cookie: c.Cookies("session"),
			Type: c.Get("Content-Type"), Agent: c.Get("User-Agent"), Many: many, Length: int64(c.Request().Header.ContentLength()), Body: string(c.Body()),
		})
	})
	f.Post("/form", protect(), func(c fiber.Ctx) error {
		app.Begin(c.Context(), "form")
		content := []byte(nil)
		if header, err := c.FormFile("f"); err == nil {
			file, _ := header.Open()
			content, _ = io.ReadAll(file)
			_ = file.Close()
		}
		return c.SendString(fmt.Sprintf("%s,%s,%s", c.FormValue("a"), c.FormValue("b"), content))
	})
	f.Post("/bind", protect(), func(c fiber.Ctx) error {
		app.Begin(c.Context(), "bind")
		var order struct {
			Amount int `json:"amount"`
		}
		if err := c.Bind().WithAutoHandling().Body(&order); err != nil {
			return err
		}
		return c.Status(fiber.StatusCreated).JSON(order)
	})
	return f
}

func ExampleMiddleware() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), fiberidempotency.Scope(fiberidempotency.User))
	if err != nil {
		fmt.Println(err)
		return
	}
	app := fiber.New()
	app.Use(basicauth.New(basicauth.Config{
		Authorizer: func(user, password string, _ fiber.Ctx) bool {
			return user == "alice" && password == "alice's password" // yours compares in constant time
		},
	}))
	app.Post("/charges", fiberidempotency.Middleware(guard), func(c fiber.Ctx) error {
		op, _ := idempotency.FromContext(c.Context())
		return fiber.NewError(fiber.StatusPaymentRequired, fmt.Sprintf("declined in attempt %d", op.Attempt()))
	})
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(`{"amount":100}`))
		r.SetBasicAuth("alice", "alice's password")
		r.Header.Set("Idempotency-Key", "order-1")
		resp, err := app.Test(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		fmt.Printf("%d %s %q\n", resp.StatusCode, body, resp.Header.Get("Idempotent-Replayed"))
	}
	// Output:
	// 402 declined in attempt 1 ""
	// 402 declined in attempt 1 "true"
}
