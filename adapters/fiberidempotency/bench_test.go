package fiberidempotency_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
	"example.com/idempotency/internal/load"
)

// BenchmarkMiddleware measures what a guard costs around a handler of fiber, and around one of net/http.
// What it costs is the difference to the bare handler of each, and that of fiber's is behind a middleware too.
func BenchmarkMiddleware(b *testing.B) {
	work := load.Small
	for _, bench := range []struct{ name, first, key string }{
		{"bare", "", ""}, {"no key", "", ""}, {"first", "", "new"}, {"replay", "k", "k"},
	} {
		key := func() string {
			if bench.key == "new" {
				return load.Key()
			}
			return bench.key
		}
		guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
		require.NoError(b, err)
		b.Run(bench.name+"/net/http", func(b *testing.B) {
			b.ReportAllocs()
			h, c := http.Handler(work), load.NewCaller(work)
			if bench.name != "bare" {
				h = guard.Handler(h)
			}
			c.Send(h, bench.first)
			for b.Loop() {
				c.Send(h, key())
			}
		})
		guard, err = idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
		require.NoError(b, err)
		b.Run(bench.name+"/fiber", func(b *testing.B) {
			b.ReportAllocs()
			app := fiber.New()
			protect := func(c fiber.Ctx) error { return c.Next() } // what every middleware costs
			if bench.name != "bare" {
				protect = fiberidempotency.Middleware(guard)
			}
			app.Use(protect)
			app.Post("/charges", func(c fiber.Ctx) error {
				c.Set("Content-Type", "application/json")
				return c.Status(http.StatusCreated).Send(work.Out)
			})
			h, c := app.Handler(), new(fasthttp.RequestCtx)
			send := func(key string) {
				c.Request.Reset()
				c.Request.Header.SetMethod(http.MethodPost)
				c.Request.SetRequestURI("/charges")
				c.Request.Header.SetHost("bench.test")
				c.Request.Header.SetContentType("application/json")
				if key != "" {
					c.Request.Header.Set("Idempotency-Key", key)
				}
				c.Request.SetBodyRaw(work.In)
				c.Response.Reset()
				h(c)
			}
			send(bench.first)
			for b.Loop() {
				send(key())
			}
		})
	}
}
