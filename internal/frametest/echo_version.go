package frametest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"example.com/idempotency"
)

// The adapter of a version of echo, which only its types tell from that of another version.

// An EchoVersion is a version of echo: C is its context, H its handlers and M its middleware.
type EchoVersion[C EchoContext, H ~func(C) error, M ~func(H) H] struct {
	// Module is the name of the module, and Nil are its calls that panic because an argument is nil.
	Module string
	Nil    []func()
	// New makes an echo.
	New func() EchoServer[C, H, M]
	// Middleware, Scope and Find are functions of the module.
	Middleware func(*idempotency.Guard) M
	Scope      func(func(C) (string, error)) idempotency.ScopeFunc
	Find       func(context.Context) (C, bool)
	// Error makes an error that echo answers with a status, Wrap a middleware of one of net/http, and WrapHandler a
	// handler.
	Error       func(status int, text string) error
	Wrap        func(func(http.Handler) http.Handler) M
	WrapHandler func(http.Handler) H
	// Writer is that of the response of a context, and Seen what middleware can tell of the answer.
	Writer func(C) http.ResponseWriter
	Seen   func(C) (status int, size int64)
	// Replace puts another writer and another request into a context, until its result is called.
	Replace func(c C, w http.ResponseWriter, r *http.Request) (restore func())
}

// An EchoServer is an echo. Group returns what adds a route to a group, and OnError takes a function that answers
// the errors of handlers.
type EchoServer[C EchoContext, H ~func(C) error, M ~func(H) H] struct {
	http.Handler
	Use     func(...M)
	Add     func(method, path string, h H, m ...M)
	Group   func(prefix string, m ...M) (add func(method, path string, h H))
	OnError func(answer func(C))
}

// An echoLink is a context, as links use it.
type echoLink[C EchoContext, H ~func(C) error, M ~func(H) H] struct {
	v    *EchoVersion[C, H, M]
	c    C
	next H
}

func (l echoLink[C, H, M]) Next() error { return l.next(l.c) }

func (l echoLink[C, H, M]) Answer(status int, body string) error { return l.c.String(status, body) }

func (l echoLink[C, H, M]) ReadBody() { _, _ = io.ReadAll(l.c.Request().Body) }

func (l echoLink[C, H, M]) Field(name string) string { return l.c.FormValue(name) }

func (l echoLink[C, H, M]) Seen() (status int, size int64) { return l.v.Seen(l.c) }

func (l echoLink[C, H, M]) Own() []any { return []any{l.c.Request(), l.v.Writer(l.c)} }

// middleware returns links and guards as middleware of echo.
func (v *EchoVersion[C, H, M]) middleware(chain []any) (all []M) {
	for _, of := range chain {
		switch of := of.(type) {
		case *idempotency.Guard:
			all = append(all, v.Middleware(of))
		case Link:
			all = append(all, func(next H) H {
				return func(c C) error { return of(echoLink[C, H, M]{v, c, next}) }
			})
		default:
			all = append(all, of.(M))
		}
	}
	return all
}

func (v *EchoVersion[C, H, M]) serve(t testing.TB, onError Link, chain ...any) string {
	e := v.New()
	if onError != nil {
		e.OnError(func(c C) { _ = onError(echoLink[C, H, M]{v: v, c: c}) })
	}
	outside, last := chain[:len(chain)-1], chain[len(chain)-1].(Link)
	e.Add(http.MethodPost, "/charges", func(c C) error { return last(echoLink[C, H, M]{v: v, c: c}) }, v.middleware(outside)...)
	return ServeHTTP(t, e) + "/charges"
}

// Adapter returns what [Adapter.Run] tests.
func (v *EchoVersion[C, H, M]) Adapter() Adapter {
	charged := func(c C) error { return c.String(http.StatusCreated, "charged") }
	created := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	return Adapter{
		Module: v.Module,
		Serve:  v.serve,
		Everywhere: func(t testing.TB, chain ...any) string {
			e := v.New()
			e.Use(v.middleware(chain)...)
			e.Add(http.MethodGet, "/charges", charged)
			return ServeHTTP(t, e)
		},
		Group: func(t testing.TB, chain ...any) string {
			e := v.New()
			e.Group("/group", v.middleware(chain)...)(http.MethodGet, "/charges", charged)
			return ServeHTTP(t, e)
		},
		Error: v.Error,
		Find: func(ctx context.Context) (Context, bool) {
			c, ok := v.Find(ctx)
			return echoLink[C, H, M]{v: v, c: c}, ok
		},
		Scope:     func() idempotency.ScopeFunc { return v.Scope(func(C) (string, error) { return "tenant", nil }) },
		Bare:      func() http.Handler { return v.New() },
		Nil:       v.Nil,
		Misplaced: v.misplaced(),
		Placed: map[string]func(testing.TB, *idempotency.Guard) string{
			"around a handler of net/http": func(t testing.TB, guard *idempotency.Guard) string {
				e := v.New()
				e.Add(http.MethodPost, "/charges", v.WrapHandler(guard.Handler(created)))
				return ServeHTTP(t, e) + "/charges"
			},
			"around the server": func(t testing.TB, guard *idempotency.Guard) string {
				e := v.New()
				e.Add(http.MethodPost, "/charges", charged)
				return ServeHTTP(t, guard.Handler(http.HandlerFunc(e.ServeHTTP))) + "/charges"
			},
		},
	}
}

// misplaced are what people write around echo's next. The last one answers into the record, but for the errors of
// handlers.
func (v *EchoVersion[C, H, M]) misplaced() map[string]func(*idempotency.Guard) any {
	byHand := func(call func(guarded func(http.ResponseWriter, *http.Request), c C)) func(*idempotency.Guard) any {
		return func(g *idempotency.Guard) any {
			return M(func(next H) H {
				return func(c C) (err error) {
					call(g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { err = next(c) })).ServeHTTP, c)
					return err
				}
			})
		}
	}
	return map[string]func(*idempotency.Guard) any{
		"WrapMiddleware": func(g *idempotency.Guard) any { return v.Wrap(g.Handler) },
		"WrapMiddleware, with a function between": func(g *idempotency.Guard) any {
			return v.Wrap(func(next http.Handler) http.Handler { return g.Handler(http.HandlerFunc(next.ServeHTTP)) })
		},
		"WrapMiddleware, with a function around": func(g *idempotency.Guard) any {
			return v.Wrap(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					g.Handler(next).ServeHTTP(struct{ http.ResponseWriter }{w}, r)
				})
			})
		},
		"by hand": byHand(func(guarded func(http.ResponseWriter, *http.Request), c C) {
			guarded(v.Writer(c), c.Request())
		}),
		"by hand, in a goroutine": byHand(func(guarded func(http.ResponseWriter, *http.Request), c C) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				guarded(v.Writer(c), c.Request())
			}()
			<-done
		}),
		"by hand, with the writer": func(g *idempotency.Guard) any {
			return M(func(next H) H {
				return func(c C) (err error) {
					restore := func() {}
					defer func() { restore() }()
					g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						restore = v.Replace(c, w, r)
						err = next(c)
					})).ServeHTTP(v.Writer(c), c.Request())
					return err
				}
			})
		},
	}
}

// ShadowOfWriter is [Adapter.Shadow] of a handler that fails after it has answered, and of a middleware that wraps
// the writer of a context.
func (v *EchoVersion[C, H, M]) ShadowOfWriter(t *testing.T, wrap func(C)) {
	t.Run("after a bit", func(t *testing.T) {
		mapped := func(c Context) error {
			if c.Next() != nil {
				return v.Error(http.StatusTeapot, "mapped")
			}
			return nil
		}
		v.Adapter().Shadow(t, http.StatusAccepted, mapped, func(c Context) error {
			return errors.Join(c.Answer(http.StatusAccepted, "a bit"), http.ErrNotSupported)
		})
	})
	t.Run("another writer", func(t *testing.T) {
		wrapped := func(c Context) error {
			wrap(c.(echoLink[C, H, M]).c)
			return c.Next()
		}
		v.Adapter().Shadow(t, http.StatusCreated, wrapped, func(c Context) error { return c.Answer(http.StatusCreated, "done") })
	})
}

// LostContext is [LostContext] with a timeout that echo wraps, and with one that is called by hand.
func (v *EchoVersion[C, H, M]) LostContext(t *testing.T) {
	for name, middleware := range map[string]func(func(http.Handler) http.Handler) M{
		"WrapMiddleware": v.Wrap,
		"by hand": func(timeout func(http.Handler) http.Handler) M {
			return func(next H) H {
				return func(c C) error {
					timeout(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { _ = next(c) })).ServeHTTP(v.Writer(c), c.Request())
					return nil
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			LostContext(t, func(timeout func(http.Handler) http.Handler, guard *idempotency.Guard, charge Charge) http.Handler {
				e := v.New()
				e.Add(http.MethodPost, "/charges", func(c C) error {
					return charge(c, func(text string) { _ = c.String(http.StatusCreated, text) })
				}, middleware(timeout), v.Middleware(guard))
				return e
			})
		})
	}
}
