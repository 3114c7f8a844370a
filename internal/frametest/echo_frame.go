package frametest

import (
	"net/http"
	"strings"
	"testing"

	"example.com/idempotency"
)

// Frame sends the requests of frametest. The guard protects a route, or a group of them, behind middleware that recovers.
func (v *EchoVersion[C, H, M]) Frame(t *testing.T, recovers M) {
	Run(t, Framework{
		Serve: func(t testing.TB, app *App, guard *idempotency.Guard) string {
			return ServeHTTP(t, v.routes(app, func(opts ...idempotency.Option) M {
				if guard == nil {
					return v.pass
				}
				return v.Middleware(guard.With(opts...))
			}, func(next H) H {
				return func(c C) error {
					header := v.Writer(c).Header()
					header.Set("X-Request-Id", app.RequestID())
					header.Set("Vary", "Origin")
					c.SetRequest(c.Request().WithContext(WithOuter(c.Request().Context(), header.Add)))
					c.Set("tenant", c.Request().Header.Get(TenantHeader))
					return next(c)
				}
			}, recovers))
		},
		FailsLate: true,
		Scope:     v.Scope(func(c C) (string, error) { return c.Get("tenant").(string), nil }),
		Route:     "POST /reply/:name",
		Differs:   HalfAnswers("the error handler"),
	})
}

// FrameAround sends them to a server that knows nothing of the guard around it.
func (v *EchoVersion[C, H, M]) FrameAround(t *testing.T) {
	Run(t, Around(func(app *App) http.Handler {
		return v.routes(app, func(...idempotency.Option) M { return v.pass })
	}))
}

func (v *EchoVersion[C, H, M]) pass(next H) H { return next }

// routes returns an echo with the routes of app.go, with middleware outside the guards. One guard protects a group of them.
func (v *EchoVersion[C, H, M]) routes(app *App, protect func(...idempotency.Option) M, outside ...M) http.Handler {
	e := v.New()
	e.Use(outside...)
	replies := e.Group("/reply", protect())
	echoRoutes(app, v.Writer, v.Error, func(method, path string, h func(C) error, opts ...idempotency.Option) {
		if name, reply := strings.CutPrefix(path, "/reply"); reply {
			replies(method, name, h)
			return
		}
		e.Add(method, path, h, protect(opts...))
	})
	return e
}

// SilentRoutes is [SilentRoutes] of an echo.
func (v *EchoVersion[C, H, M]) SilentRoutes(t *testing.T) {
	SilentRoutes(t, func(t testing.TB, h http.Handler) string {
		e := v.New()
		e.Add(http.MethodPost, "/quiet", v.WrapHandler(h))
		e.Add(http.MethodPost, "/silent/:id", v.WrapHandler(h))
		return ServeHTTP(t, e)
	})
}

// TemporaryFiles is [TemporaryFiles] of an echo.
func (v *EchoVersion[C, H, M]) TemporaryFiles(t *testing.T) {
	TemporaryFiles(t, func(t testing.TB, guard *idempotency.Guard, parse func(*http.Request)) string {
		e, protected := v.New(), v.Middleware(guard)
		e.Add(http.MethodPost, "/files", func(c C) error { parse(c.Request()); return c.NoContent(http.StatusCreated) }, protected, protected)
		return ServeHTTP(t, e) + "/files"
	})
}

// BodyLimit is [TooLarge] of an echo whose middleware outside the guard limits bodies.
func (v *EchoVersion[C, H, M]) BodyLimit(t *testing.T, limit M) {
	guard, _ := NewGuard(t, idempotency.SharedScope)
	e := v.New()
	e.Add(http.MethodPost, "/charges", func(c C) error { return c.NoContent(http.StatusCreated) }, limit, v.Middleware(guard))
	TooLarge(t, e)
}

// HalfAnswer is [RequireHeld] of a handler that fails after the first byte, with middleware inside the guard.
func (v *EchoVersion[C, H, M]) HalfAnswer(t *testing.T, fail func() error, inside ...M) {
	RequireHeld(t, func(guard *idempotency.Guard) http.Handler {
		e := v.New()
		e.Add(http.MethodPost, "/", func(c C) error {
			_ = c.String(http.StatusCreated, "half an ans")
			return fail()
		}, append([]M{v.Middleware(guard)}, inside...)...)
		return e
	})
}
