package bench_test

import (
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	echo5 "github.com/labstack/echo/v5"
	"github.com/valyala/fasthttp"

	"example.com/idempotency"
	"example.com/idempotency/adapters/echo4idempotency"
	"example.com/idempotency/adapters/echoidempotency"
	ourfiber "example.com/idempotency/adapters/fiberidempotency"
	"example.com/idempotency/adapters/ginidempotency"
	"example.com/idempotency/internal/load"
)

// What the modules for frameworks cost. The floor is a guard around the whole application of the framework, on
// net/http. Where there can be none, on fasthttp, it is a guard on net/http, and for a request without a key the
// bare application.

// newGuard is what a module gets.
func newGuard(opts ...idempotency.Option) *idempotency.Guard {
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, opts...)
	if err != nil {
		panic(err)
	}
	return g
}

func ginApp(work load.Work, protection ...gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	app := gin.New()
	app.POST("/charges", append(protection, func(c *gin.Context) { work.ServeHTTP(c.Writer, c.Request) })...)
	return app
}

func echo4App(work load.Work, protection ...echo.MiddlewareFunc) http.Handler {
	app := echo.New()
	app.POST("/charges", func(c echo.Context) error {
		work.ServeHTTP(c.Response(), c.Request())
		return nil
	}, protection...)
	return app
}

func echoApp(work load.Work, protection ...echo5.MiddlewareFunc) http.Handler {
	app := echo5.New()
	app.POST("/charges", func(c *echo5.Context) error {
		work.ServeHTTP(c.Response(), c.Request())
		return nil
	}, protection...)
	return app
}

// A fasthttpCaller is what a caller is, for a server of fasthttp, which reads requests where they are.
type fasthttpCaller struct{ ctx fasthttp.RequestCtx }

// A quietConn is a connection on which nothing happens.
type quietConn struct{ net.Conn }

func (quietConn) SetWriteDeadline(time.Time) error { return nil }

func (quietConn) RemoteAddr() net.Addr { return client }

var client = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000}

func newFasthttpCaller(work load.Work) *fasthttpCaller {
	c := &fasthttpCaller{}
	c.ctx.Init2(quietConn{}, nil, false)
	r := &c.ctx.Request
	r.Header.SetMethod(http.MethodPost)
	r.SetRequestURI("/charges")
	r.Header.SetHost("bench.test")
	r.Header.SetContentType("application/json")
	r.Header.SetContentLength(len(work.In))
	r.SetBodyRaw(work.In)
	return c
}

func (c *fasthttpCaller) send(h fasthttp.RequestHandler, key string) int {
	c.ctx.Request.Header.Del("Idempotency-Key")
	if key != "" {
		c.ctx.Request.Header.SetCanonical([]byte("Idempotency-Key"), []byte(key))
	}
	c.ctx.ResetUserValues()
	c.ctx.Response.Reset()
	h(&c.ctx)
	return c.ctx.Response.StatusCode()
}

func fiberApp(work load.Work, protection fiber.Handler) fasthttp.RequestHandler {
	app := fiber.New()
	app.Post("/charges", protection, func(c fiber.Ctx) error {
		c.Set("Content-Type", "application/json")
		return c.Status(http.StatusCreated).Send(work.Out)
	})
	return app.Handler()
}

// moduleRows are the requests of memoryRows, behind each module.
func moduleRows(work load.Work) []*row {
	var rows []*row
	kinds := []struct {
		name string
		send request
	}{{"no key", keyless}, {"first run", firstRun}, {"replay", replay}}
	add := func(r ...*row) {
		for _, r := range r {
			r.size, r.workers = batchSize(work), 1
		}
		rows = append(rows, r...)
	}
	for _, f := range []struct {
		name    string
		bare    func() http.Handler
		guarded func() http.Handler
	}{
		{
			"gin", func() http.Handler { return ginApp(work) },
			func() http.Handler { return ginApp(work, ginidempotency.Middleware(newGuard())) },
		},
		{
			"echo v4", func() http.Handler { return echo4App(work) },
			func() http.Handler { return echo4App(work, echo4idempotency.Middleware(newGuard())) },
		},
		{
			"echo v5", func() http.Handler { return echoApp(work) },
			func() http.Handler { return echoApp(work, echoidempotency.Middleware(newGuard())) },
		},
		{
			"huma", func() http.Handler { return humaApp(work, nil) },
			func() http.Handler { return humaApp(work, protectHuma) },
		},
	} {
		for _, k := range kinds {
			floor := &row{name: f.name + ", guard outside: " + k.name}
			floor.prepare = each(work, func() http.Handler { return newGuard().Handler(f.bare()) }, k.send)
			mine := &row{name: f.name + ": " + k.name, floor: floor, bare: floor}
			mine.prepare = each(work, f.guarded, k.send)
			add(floor, mine)
		}
	}

	fiberRow := func(name string, protection func() fiber.Handler, key func(fresh, answered string) string) *row {
		return &row{name: name, prepare: func(_, n int) []func(int) bool {
			h, c := fiberApp(work, protection()), newFasthttpCaller(work)
			keys, answered := load.Keys(n), load.Key()
			c.send(h, answered)
			return []func(int) bool{func(i int) bool { return c.send(h, key(keys[i], answered)) == http.StatusCreated }}
		}}
	}
	ours := func() fiber.Handler { return ourfiber.Middleware(newGuard()) }
	none := func(_, _ string) string { return "" }
	bare := fiberRow("fiber: a middleware that does nothing", func() fiber.Handler { return fiber.Ctx.Next }, none)
	add(bare)
	here := func() http.Handler { return newGuard().Handler(work) }
	for i, key := range []func(fresh, answered string) string{
		none, func(fresh, _ string) string { return fresh }, func(_, answered string) string { return answered },
	} {
		outside := connectRow("connect, guard outside: "+kinds[i].name, work, func() http.Handler {
			return newGuard(idempotency.WithFingerprint(own)).Handler(connectApp(work))
		}, key)
		inside := connectRow("connect: "+kinds[i].name, work, func() http.Handler { return connectApp(work, connectGuard(newGuard())) }, key)
		inside.floor, inside.bare = outside, outside
		add(outside, inside)
		call := grpcRow("grpc: "+kinds[i].name, work, key)
		floor := &row{name: "net/http: " + kinds[i].name, prepare: each(work, here, kinds[i].send)}
		add(floor)
		mine := fiberRow("fiber: "+kinds[i].name, ours, key)
		mine.floor, mine.bare = floor, floor
		add(mine)
		if i > 0 { // without a key, nothing of a call is one of HTTP
			call.floor, call.bare = floor, floor
			add(call)
		}
	}
	noKey := fiberRow("fiber: no key, against the bare app", ours, none)
	noKey.floor, noKey.bare = bare, bare
	add(noKey)
	return rows
}
