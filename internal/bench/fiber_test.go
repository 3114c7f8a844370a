package bench_test

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	fiberidempotency "github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/valyala/fasthttp"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
)

// A fiberCaller is what a caller is, for the server that Fiber is made for.
type fiberCaller struct {
	work load.Work
	ctx  fasthttp.RequestCtx
}

func (c *fiberCaller) send(h fasthttp.RequestHandler, key string) int {
	r := &c.ctx.Request
	r.Reset()
	r.Header.SetMethod(http.MethodPost)
	r.SetRequestURI("http://bench.test/charges")
	r.Header.SetContentType("application/json")
	if key != "" {
		r.Header.Set("X-Idempotency-Key", key)
	}
	r.SetBodyRaw(c.work.In)
	c.ctx.Response.Reset()
	h(&c.ctx)
	return c.ctx.Response.StatusCode()
}

// fiberRows are the requests that Fiber's own middleware protects, in its default
// configuration with its memory store, against its own bare handler; and the same requests with this
// package, against those.
func fiberRows(work load.Work) []*row {
	app := func(protection ...any) fasthttp.RequestHandler {
		app := fiber.New(fiber.Config{BodyLimit: 4 << 20})
		if len(protection) > 0 {
			app.Use(protection...)
		}
		app.Post("/charges", func(c fiber.Ctx) error {
			c.Set("Content-Type", "application/json")
			return c.Status(http.StatusCreated).Send(work.Out)
		})
		return app.Handler()
	}
	prepare := func(handler func() fasthttp.RequestHandler, replay, keyed bool) func(int, int) []func(int) bool {
		return func(workers, n int) []func(int) bool {
			h := handler()
			calls := make([]func(int) bool, workers)
			for w := range calls {
				c, keys := &fiberCaller{work: work}, load.Keys(n)
				c.send(h, load.Key())
				if replay {
					c.send(h, keys[0])
				}
				calls[w] = func(i int) bool {
					key := keys[i]
					switch {
					case !keyed:
						key = ""
					case replay:
						key = keys[0]
					}
					return c.send(h, key) == http.StatusCreated
				}
			}
			return calls
		}
	}
	bareApp := func() fasthttp.RequestHandler { return app() }
	protected := func() fasthttp.RequestHandler { return app(fiberidempotency.New()) }
	bare := &row{name: "bare handler", prepare: prepare(bareApp, false, false)}
	first := &row{name: "first run", floor: bare, bare: bare, prepare: prepare(protected, false, true)}
	again := &row{name: "replay", floor: bare, bare: bare, prepare: prepare(protected, true, true)}
	here := func() http.Handler { return guarded(idempotency.NewMemoryStore(), work) }
	rows := []*row{
		bare,
		{name: "no key", floor: bare, bare: bare, prepare: prepare(protected, false, false)},
		first,
		again,
		{name: "first run with this package, on net/http", floor: first, prepare: each(work, here, firstRun)},
		{name: "replay with this package, on net/http", floor: again, prepare: each(work, here, replay)},
	}
	for _, r := range rows {
		r.size, r.workers = batchSize(work), 1
	}
	return rows
}
