package fiberidempotency_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/basicauth"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// serve serves one route with the given handlers.
func serve(t testing.TB, app *fiber.App, handler any, more ...any) string {
	app.Post("/charges", handler, more...)
	return listen(t, app) + "/charges"
}

// newGuard returns a guard as a middleware, and its events.
func newGuard(t testing.TB, opts ...idempotency.Option) (fiber.Handler, func(event.Kind) []event.Event) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope, opts...)
	return fiberidempotency.Middleware(guard), events
}

func declined(fiber.Ctx) error { return fiber.NewError(fiber.StatusUnprocessableEntity, "declined") }

// TestAdapter is what holds for each framework; the rest of this file is about fiber.
func TestAdapter(t *testing.T) {
	adapter().Run(t)
}

// A link is fiber's context, as the tests of frametest use it.
type link struct{ fiber.Ctx }

func (l link) Answer(status int, body string) error { return l.Status(status).SendString(body) }

func (l link) ReadBody() {} // fasthttp has

func (l link) Field(name string) string { return strings.Clone(l.FormValue(name)) }

func (l link) Seen() (status int, size int64) {
	return l.Response().StatusCode(), int64(len(l.Response().Body()))
}

func (l link) Own() []any { return []any{l.Context()} }

// handlers returns links and guards as handlers of fiber.
func handlers(chain []any) (all []any) {
	for _, of := range chain {
		switch of := of.(type) {
		case *idempotency.Guard:
			all = append(all, fiberidempotency.Middleware(of))
		case frametest.Link:
			all = append(all, func(c fiber.Ctx) error { return of(link{c}) })
		default:
			all = append(all, of)
		}
	}
	return all
}

func serveChain(t testing.TB, onError frametest.Link, chain ...any) string {
	var config fiber.Config
	if onError != nil {
		config.ErrorHandler = func(c fiber.Ctx, _ error) error { return onError(link{c}) }
	}
	all := handlers(chain)
	return serve(t, fiber.New(config), all[0], all[1:]...)
}

func charged(c fiber.Ctx) error { return c.Status(fiber.StatusCreated).SendString("charged") }

var created = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })

func adapter() frametest.Adapter {
	return frametest.Adapter{
		Module: "fiberidempotency",
		Serve:  serveChain,
		Everywhere: func(t testing.TB, chain ...any) string {
			app := fiber.New()
			app.Use(handlers(chain)...)
			app.Get("/charges", charged)
			return listen(t, app)
		},
		Error: func(status int, text string) error { return fiber.NewError(status, text) },
		Find: func(ctx context.Context) (frametest.Context, bool) {
			c, ok := fiberidempotency.Context(ctx)
			return link{c}, ok
		},
		Scope: func() idempotency.ScopeFunc { return fiberidempotency.Scope(fiberidempotency.User) },
		Bare:  func() http.Handler { return adaptor.FiberApp(fiber.New()) },
		Nil:   []func(){func() { fiberidempotency.Middleware(nil) }, func() { fiberidempotency.Scope(nil) }},
		Misplaced: map[string]func(*idempotency.Guard) any{
			"HTTPMiddleware": func(g *idempotency.Guard) any { return adaptor.HTTPMiddleware(g.Handler) },
			"HTTPMiddleware, with a function between": func(g *idempotency.Guard) any {
				return adaptor.HTTPMiddleware(func(next http.Handler) http.Handler { return g.Handler(http.HandlerFunc(next.ServeHTTP)) })
			},
			"HTTPMiddleware, with a function around": func(g *idempotency.Guard) any {
				return adaptor.HTTPMiddleware(func(next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.Handler(next).ServeHTTP(w, r) })
				})
			},
			"HTTPMiddleware, in another goroutine": func(g *idempotency.Guard) any {
				return adaptor.HTTPMiddleware(func(next http.Handler) http.Handler { return http.TimeoutHandler(g.Handler(next), time.Minute, "") })
			},
			"HTTPHandler": func(g *idempotency.Guard) any { return adaptor.HTTPHandler(g.Handler(created)) },
		},
		Placed: map[string]func(testing.TB, *idempotency.Guard) string{
			"in front of a handler of net/http": func(t testing.TB, guard *idempotency.Guard) string {
				return serve(t, fiber.New(), fiberidempotency.Middleware(guard), adaptor.HTTPHandler(created))
			},
			"around the app": func(t testing.TB, guard *idempotency.Guard) string {
				app := fiber.New()
				app.Post("/charges", charged)
				return frametest.ServeHTTP(t, guard.Handler(adaptor.FiberApp(app))) + "/charges"
			},
		},
		SilentStatus: fiber.StatusOK,
	}
}

// Middleware outside the guard can leave values in a context of its own, and finds that again.
func TestContextOfOuterMiddleware(t *testing.T) {
	type key struct{}
	for name, handler := range map[string]fiber.Handler{"error": declined, "panic": func(fiber.Ctx) error { panic("bug") }} {
		observe := func(c fiber.Ctx) error {
			ctx := context.WithValue(c.Context(), key{}, "mine")
			c.SetContext(ctx)
			err := c.Next()
			require.Equal(t, ctx, c.Context())
			return err
		}
		guarded, _ := newGuard(t)
		url := serve(t, fiber.New(), observe, recover.New(), guarded, func(c fiber.Ctx) error {
			require.Equal(t, "mine", c.Context().Value(key{}))
			return handler(c)
		})
		require.GreaterOrEqual(t, frametest.Post(t, url).Status, http.StatusBadRequest, name)
	}
}

// What middleware outside writes behind an answer reaches its client, behind the answer.
func TestOuterMiddlewareAddsToTheBody(t *testing.T) {
	sign := func(c fiber.Ctx) error {
		err := c.Next()
		_, _ = c.WriteString(", signed")
		return err
	}
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(), sign, guarded, func(c fiber.Ctx) error { return c.SendString("charged") })
	require.Equal(t, frametest.Answer{Status: 200, Body: "charged, signed"}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 200, Body: "charged, signed", Replayed: true}, frametest.Post(t, url))
}

// upload sends a form, whose boundary is another one each time.
func upload(t *testing.T, url, content string) frametest.Answer {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, name := range []string{"e", "c", "a", "d", "b"} {
		require.NoError(t, w.WriteField(name, "value of "+name))
	}
	for _, name := range []string{"y", "x", "z"} {
		f, err := w.CreateFormFile(name, name+".txt")
		require.NoError(t, err)
		_, err = io.WriteString(f, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	got, _ := frametest.PostBody(t, url, b.String(), map[string]string{"Content-Type": w.FormDataContentType()})
	return got
}

// fasthttp parses a form before any handler runs, and keeps its parts in no order. The same form is
// the same payload all the same.
func TestFormsAreCompared(t *testing.T) {
	for name, config := range map[string]fiber.Config{
		"parsed": {}, "not parsed": {DisablePreParseMultipartForm: true}, "streamed": {StreamRequestBody: true},
	} {
		t.Run(name, func(t *testing.T) {
			guarded, _ := newGuard(t)
			url := serve(t, fiber.New(config), guarded, func(c fiber.Ctx) error {
				header, err := c.FormFile("y")
				require.NoError(t, err)
				f, err := header.Open()
				require.NoError(t, err)
				content, err := io.ReadAll(f)
				require.NoError(t, err)
				return c.SendString(c.FormValue("a") + ": " + string(content))
			})
			require.Equal(t, frametest.Answer{Status: 200, Body: "value of a: content"}, upload(t, url, "content"))
			for range 5 {
				require.Equal(t, frametest.Answer{Status: 200, Body: "value of a: content", Replayed: true}, upload(t, url, "content"))
			}
			require.Equal(t, http.StatusConflict, upload(t, url, "another").Status)
		})
	}
}

// A body that fiber hands on as a stream is read by the guard, and the handler has it too.
func TestStreamedRequest(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	echo := func(c fiber.Ctx) error { return c.Send(c.Body()) }
	app.Post("/unprotected", fiberidempotency.Middleware(guard.With(idempotency.WithMethods(http.MethodPut))), echo)
	url := serve(t, app, fiberidempotency.Middleware(guard), echo)
	require.Equal(t, frametest.Answer{Status: 200, Body: `{"amount":100}`}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 200, Body: `{"amount":100}`, Replayed: true}, frametest.Post(t, url))
	require.Equal(t, `{"amount":100}`, frametest.Post(t, strings.Replace(url, "charges", "unprotected", 1)).Body)
}

// A stream that breaks is no answer. Bare, the client would have a part of it.
func TestBrokenStreamIsNotRecorded(t *testing.T) {
	for name, size := range map[string]int{"error": -1, "short": 100} {
		t.Run(name, func(t *testing.T) {
			guarded, _ := newGuard(t)
			runs := 0
			url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
				if runs++; runs > 1 {
					return c.SendString("done")
				}
				half := io.Reader(strings.NewReader("half"))
				if size < 0 {
					half = io.MultiReader(half, iotest.ErrReader(errors.New("broken")))
				}
				return c.SendStream(half, size)
			})
			require.Equal(t, http.StatusInternalServerError, frametest.Post(t, url).Status)
			require.Equal(t, frametest.Answer{Status: 200, Body: "done"}, frametest.Post(t, url))
		})
	}
}

// Nothing records what goes over a connection that a handler has taken.
func TestHijackIsRefused(t *testing.T) {
	guarded, _ := newGuard(t, idempotency.WithRecovery(idempotency.Hold))
	url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(conn net.Conn) { _, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") })
		return nil
	})
	first := frametest.Post(t, url)
	require.Equal(t, http.StatusInternalServerError, first.Status)
	require.Contains(t, first.Body, "cannot hijack")
	require.Equal(t, http.StatusConflict, frametest.Post(t, url).Status)
}

// A handler that drops its connection has made a run whose answer nobody gets, whatever its response
// holds.
func TestDroppedConnection(t *testing.T) {
	for name, drop := range map[string]fiber.Handler{
		"in silence": func(c fiber.Ctx) error { return c.Drop() },
		"after an answer": func(c fiber.Ctx) error {
			return errors.Join(c.Status(fiber.StatusCreated).SendString("charged"), c.Drop())
		},
		"with an error": func(c fiber.Ctx) error { return errors.Join(c.Drop(), fiber.ErrPaymentRequired) },
	} {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			t.Run(name+"/"+recovery.String(), func(t *testing.T) {
				guarded, events := newGuard(t, idempotency.WithRecovery(recovery))
				runs := 0
				url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
					if runs++; runs == 1 {
						return drop(c)
					}
					return c.SendString("done")
				})
				require.Equal(t, frametest.Answer{}, frametest.Post(t, url), "the connection is cut")
				again := frametest.PostSettled(t, url)
				require.Eventually(t, func() bool {
					return slices.ContainsFunc(events(event.Run), func(e event.Event) bool {
						return e.Attempt == 1 && e.Outcome == idempotency.Unknown
					})
				}, 10*time.Second, time.Millisecond)
				if recovery == idempotency.Hold {
					require.Contains(t, again.Body, problem.OutcomeUnknown)
					return
				}
				require.Equal(t, frametest.Answer{Status: 200, Body: "done"}, again)
			})
		}
	}
}

// What a handler sends at once, with c.End, is its answer. Of a stream it is only known that it was
// sent.
func TestEndedConnection(t *testing.T) {
	for name, test := range map[string]struct {
		send fiber.Handler
		want frametest.Answer
		kept bool
	}{
		"answer":  {func(c fiber.Ctx) error { return c.Status(201).SendString("charged") }, frametest.Answer{Status: 201, Body: "charged"}, true},
		"no body": {func(c fiber.Ctx) error { c.Status(202); return nil }, frametest.Answer{Status: 202}, true},
		"204":     {func(c fiber.Ctx) error { c.Status(204); return nil }, frametest.Answer{Status: 204}, true},
		"stream":  {func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("charged")) }, frametest.Answer{Status: 200, Body: "charged"}, false},
		"stream of known length": {
			func(c fiber.Ctx) error { return c.SendStream(strings.NewReader("charged"), 7) }, frametest.Answer{Status: 200, Body: "charged"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			guarded, _ := newGuard(t)
			runs := 0
			url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
				runs++
				return errors.Join(test.send(c), c.End())
			})
			require.Equal(t, test.want, frametest.Post(t, url))
			again := frametest.PostSettled(t, url)
			if test.kept {
				test.want.Replayed = true
				require.Equal(t, test.want, again)
			} else {
				require.Contains(t, again.Body, problem.ResponseNotKept)
			}
			require.Equal(t, 1, runs)
		})
	}
}

// A handler on which the timeout has given up still runs. So its outcome is unknown, and its client
// is not told that nothing was done.
func TestTimeoutInside(t *testing.T) {
	release, done := make(chan struct{}), make(chan struct{})
	for name, handler := range map[string]fiber.Handler{
		"abandoned": func(c fiber.Ctx) error {
			defer close(done)
			<-release
			return c.SendString("late")
		},
		"stopped": func(c fiber.Ctx) error {
			<-c.Context().Done()
			return c.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			guarded, events := newGuard(t, idempotency.WithRecovery(idempotency.Hold))
			url := serve(t, fiber.New(), guarded, timeout.New(handler, timeout.Config{Timeout: time.Millisecond}))
			first := frametest.Post(t, url)
			require.Equal(t, http.StatusConflict, first.Status, first.Body)
			require.Contains(t, first.Body, "outcome-unknown")
			require.Contains(t, frametest.Post(t, url).Body, "outcome-unknown")
			runs := events(event.Run)
			require.Len(t, runs, 1)
			require.Equal(t, idempotency.Unknown, runs[0].Outcome)
		})
	}
	close(release)
	<-done
}

// A handler that says nothing is reported.
func TestSilentHandlerIsReported(t *testing.T) {
	guarded, events := newGuard(t, idempotency.WithSilence(idempotency.Unknown))
	url := serve(t, fiber.New(), guarded, func(fiber.Ctx) error { return nil })
	require.Equal(t, frametest.Answer{Status: 200}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 200}, frametest.Post(t, url))
	require.Len(t, events(event.Silent), 1)
	require.Equal(t, "POST /charges", events(event.Silent)[0].Route)
}

// The scope can be the user of basicauth.
func TestScope(t *testing.T) {
	guard, events := frametest.NewGuard(t, fiberidempotency.Scope(fiberidempotency.User))
	auth := basicauth.New(basicauth.Config{Authorizer: func(user, password string, _ fiber.Ctx) bool { return user == "alice" && password == "secret" }})
	url := serve(t, fiber.New(), auth, fiberidempotency.Middleware(guard), declined)
	require.Equal(t, http.StatusUnprocessableEntity, frametest.Post(t, url).Status)
	require.Equal(t, "alice", events(event.Run)[0].Scope)

	url = serve(t, fiber.New(), fiberidempotency.Middleware(guard), declined)
	require.Equal(t, http.StatusUnauthorized, frametest.Post(t, url).Status)
}

// A scope is kept for events and the log. It does not change when fiber uses its memory again.
func TestScopeIsCopied(t *testing.T) {
	guard, events := frametest.NewGuard(t, fiberidempotency.Scope(func(c fiber.Ctx) (string, error) { return c.Get("X-Tenant"), nil }))
	url := serve(t, fiber.New(), fiberidempotency.Middleware(guard), declined)
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}} // one connection has one memory
	defer client.CloseIdleConnections()
	tenants := []string{"aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc"}
	for _, tenant := range tenants {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		require.NoError(t, err)
		r.Header.Set("X-Tenant", tenant)
		r.Header.Set("Idempotency-Key", "key")
		resp, err := client.Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	var scopes []string
	for _, e := range events(event.Run) {
		scopes = append(scopes, e.Scope)
	}
	require.Equal(t, tenants, scopes)
}

// Fiber serves targets that net/url cannot parse. A guard compares them as they came.
func TestTargetThatCannotBeParsed(t *testing.T) {
	guarded, _ := newGuard(t)
	app := fiber.New()
	app.Post("/charges/:id", guarded, func(c fiber.Ctx) error { return c.SendString(c.Params("id") + c.Query("q")) })
	address := strings.TrimPrefix(listen(t, app), "http://")
	post := func(target, key string) string {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "POST "+target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n"+key+"X-Tenant: a\r\n\r\n")
		require.NoError(t, err)
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		return strings.Fields(head)[1] + " " + body
	}
	const key = "Idempotency-Key: k\r\n"
	require.Equal(t, "200 %zz1%", post("/charges/%zz?q=1%", ""))
	require.Equal(t, "200 %zz1%", post("/charges/%zz?q=1%", key))
	require.Equal(t, "200 %zz1%", post("/charges/%zz?q=1%", key))
	require.Contains(t, post("/charges/%zz?q=2%", key), "409 ")
}

// A handler may say that its answer has no type.
func TestAnswerWithoutAType(t *testing.T) {
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
		c.Response().Header.SetNoDefaultContentType(true)
		return c.SendString("done")
	})
	for range 2 {
		got, header := frametest.PostBody(t, url, "", nil)
		require.Equal(t, "done", got.Body)
		require.NotContains(t, header, "Content-Type")
	}
}

func TestOwnContextHasTheRun(t *testing.T) {
	frametest.OwnContext(t, func(t testing.TB, guard *idempotency.Guard, charge func(context.Context) error) string {
		return serve(t, fiber.New(), fiberidempotency.Middleware(guard), func(c fiber.Ctx) error {
			if err := charge(c); err != nil {
				return err
			}
			return c.SendStatus(http.StatusCreated)
		})
	})
}
