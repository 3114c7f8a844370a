package frametest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"testing"

	"example.com/idempotency"
)

// The handlers of a program with echo, whose versions differ in their types alone.

// An EchoContext is the context of a version of echo, as far as handlers use it.
type EchoContext interface {
	Request() *http.Request
	Param(name string) string
	QueryString() string
	FormValue(name string) string
	FormFile(name string) (*multipart.FileHeader, error)
	Cookie(name string) (*http.Cookie, error)
	Bind(any) error
	NoContent(status int) error
	String(status int, text string) error
	JSON(status int, value any) error
	Blob(status int, mediaType string, body []byte) error
	Redirect(status int, location string) error
}

// EchoRoutes adds the routes of app.go to an echo. The writer is that of a context, and fail makes an error that echo
// answers with a status.
func EchoRoutes[C EchoContext](
	app *App, writer func(C) http.ResponseWriter, fail func(status int, text string) error,
	handle func(method, path string, h func(C) error, opts ...idempotency.Option),
) {
	begin := func(c C) Reply { return app.Begin(c.Request().Context(), c.Param("name")) }
	reply := func(c C) error {
		r := begin(c)
		maps.Copy(writer(c).Header(), r.Header)
		defer func() { maps.Copy(writer(c).Header(), r.Trailer) }()
		switch location := r.Header.Get("Location"); {
		case location != "" && r.Status/100 == 3:
			return c.Redirect(r.Status, location)
		case r.Body == "":
			return c.NoContent(r.Status)
		case r.Header.Get("Content-Type") == "":
			writer(c).WriteHeader(r.Status)
			_, err := io.WriteString(writer(c), r.Body)
			return err
		default:
			return c.Blob(r.Status, r.Header.Get("Content-Type"), []byte(r.Body))
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodGet} {
		handle(method, "/reply/:name", reply)
	}
	handle(http.MethodPost, "/held/:name", reply, idempotency.WithRecovery(idempotency.Hold))
	handle(http.MethodPost, "/required/:name", reply, idempotency.WithRequired(true))
	handle(http.MethodPost, "/error/:name", func(c C) error {
		r := begin(c)
		if r.Status == 0 {
			return errors.New(r.Body)
		}
		return fail(r.Status, r.Body)
	})
	handle(http.MethodPost, "/panic/:name", func(c C) error {
		r := begin(c)
		if r.Body != "" {
			_, _ = io.WriteString(writer(c), r.Body)
		}
		panic(r.Panic)
	})
	handle(http.MethodPost, "/stream/:name", func(c C) error {
		r := begin(c)
		maps.Copy(writer(c).Header(), r.Header)
		for _, chunk := range r.Chunks {
			_, _ = io.WriteString(writer(c), chunk)
			_ = http.NewResponseController(writer(c)).Flush()
			r.Pause()
		}
		if r.Status != 0 {
			return fail(r.Status, "too late")
		}
		return nil
	})
	handle(http.MethodPost, "/request/:name", func(c C) error {
		begin(c)
		r := c.Request()
		body, _ := io.ReadAll(r.Body)
		session := ""
		if cookie, err := c.Cookie("session"); err == nil {
			session = cookie.Value
		}
		return c.JSON(http.StatusOK, Seen{
			Method: r.Method, Path: r.URL.Path, Name: c.Param("name"), Query: c.QueryString(), Cookie: session,
			Type: r.Header.Get("Content-Type"), Agent: r.UserAgent(), Many: r.Header["X-Many"], Length: r.ContentLength, Body: string(body),
		})
	})
	handle(http.MethodPost, "/form", func(c C) error {
		app.Begin(c.Request().Context(), "form")
		content := []byte(nil)
		if header, err := c.FormFile("f"); err == nil {
			f, _ := header.Open()
			content, _ = io.ReadAll(f)
			_ = f.Close()
		}
		return c.String(http.StatusOK, fmt.Sprintf("%s,%s,%s", c.FormValue("a"), c.FormValue("b"), content))
	})
	handle(http.MethodPost, "/bind", func(c C) error {
		app.Begin(c.Request().Context(), "bind")
		var order struct {
			Amount int `json:"amount"`
		}
		if err := c.Bind(&order); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, order)
	})
}

// EchoMisplaced are what people write around echo's next, for an [Adapter]. The last one answers into the record,
// but for the errors of handlers. The function replace puts another writer and another request into a context until
// its result is called.
func EchoMisplaced[C EchoContext, H ~func(C) error, M ~func(H) H](
	wrap func(func(http.Handler) http.Handler) M, writer func(C) http.ResponseWriter,
	replace func(c C, w http.ResponseWriter, r *http.Request) (restore func()),
) map[string]func(*idempotency.Guard) any {
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
		"WrapMiddleware": func(g *idempotency.Guard) any { return wrap(g.Handler) },
		"WrapMiddleware, with a function between": func(g *idempotency.Guard) any {
			return wrap(func(next http.Handler) http.Handler { return g.Handler(http.HandlerFunc(next.ServeHTTP)) })
		},
		"WrapMiddleware, with a function around": func(g *idempotency.Guard) any {
			return wrap(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					g.Handler(next).ServeHTTP(struct{ http.ResponseWriter }{w}, r)
				})
			})
		},
		"by hand": byHand(func(guarded func(http.ResponseWriter, *http.Request), c C) {
			guarded(writer(c), c.Request())
		}),
		"by hand, in a goroutine": byHand(func(guarded func(http.ResponseWriter, *http.Request), c C) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				guarded(writer(c), c.Request())
			}()
			<-done
		}),
		"by hand, with the writer": func(g *idempotency.Guard) any {
			return M(func(next H) H {
				return func(c C) (err error) {
					restore := func() {}
					defer func() { restore() }()
					g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						restore = replace(c, w, r)
						err = next(c)
					})).ServeHTTP(writer(c), c.Request())
					return err
				}
			})
		},
	}
}

// EchoLostContext is [LostContext] with a timeout that echo wraps, and with one that is called by hand. The function
// makes a server with POST /charges.
func EchoLostContext[C EchoContext, H ~func(C) error, M ~func(H) H](
	t *testing.T, wrap func(func(http.Handler) http.Handler) M, writer func(C) http.ResponseWriter,
	serve func(timeout M, guard *idempotency.Guard, charge H) http.Handler,
) {
	for name, middleware := range map[string]func(func(http.Handler) http.Handler) M{
		"WrapMiddleware": wrap,
		"by hand": func(timeout func(http.Handler) http.Handler) M {
			return func(next H) H {
				return func(c C) error {
					timeout(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { _ = next(c) })).ServeHTTP(writer(c), c.Request())
					return nil
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			LostContext(t, func(timeout func(http.Handler) http.Handler, guard *idempotency.Guard, charge Charge) http.Handler {
				return serve(middleware(timeout), guard, func(c C) error {
					return charge(c, func(text string) { _ = c.String(http.StatusCreated, text) })
				})
			})
		})
	}
}
