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
	"example.com/idempotency/fiberidempotency"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// serve serves one route with the given handlers.
func serve(t *testing.T, app *fiber.App, handler any, more ...any) string {
	app.Post("/charges", handler, more...)
	return listen(t, app) + "/charges"
}

// newGuard returns a guard as a middleware, and its events.
func newGuard(t *testing.T, opts ...idempotency.Option) (fiber.Handler, func(idempotency.EventKind) []idempotency.Event) {
	guard, events := frametest.NewGuard(t, frametest.HeaderScope, opts...)
	return fiberidempotency.Middleware(guard), events
}

func declined(fiber.Ctx) error { return fiber.NewError(fiber.StatusUnprocessableEntity, "declined") }

// Middleware outside the guard sees the answer and its own context, and no error that it would
// answer again.
func TestOuterMiddlewareSeesTheAnswer(t *testing.T) {
	t.Parallel()
	var statuses []int
	var bodies []string
	observe := func(c fiber.Ctx) error {
		ctx := context.WithValue(c.Context(), &statuses, "mine")
		c.SetContext(ctx)
		err := c.Next()
		require.NoError(t, err)
		require.Equal(t, ctx, c.Context())
		statuses, bodies = append(statuses, c.Response().StatusCode()), append(bodies, string(c.Response().Body()))
		return err
	}
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(), observe, guarded, func(c fiber.Ctx) error {
		require.Equal(t, "mine", c.Context().Value(&statuses))
		return declined(c)
	})
	require.Equal(t, frametest.Answer{Status: 422, Body: "declined"}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 422, Body: "declined", Replayed: true}, frametest.Post(t, url))
	require.Equal(t, []int{422, 422}, statuses)
	require.Equal(t, []string{"declined", "declined"}, bodies)
}

// What middleware outside writes behind an answer reaches its client, behind the answer.
func TestOuterMiddlewareAddsToTheBody(t *testing.T) {
	t.Parallel()
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

// After a panic, outer middleware finds its own context.
func TestContextAfterAPanic(t *testing.T) {
	t.Parallel()
	observe := func(c fiber.Ctx) error {
		ctx := c.Context()
		err := c.Next()
		require.Equal(t, ctx, c.Context())
		return err
	}
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(), observe, recover.New(), guarded, func(fiber.Ctx) error { panic("bug") })
	require.Equal(t, http.StatusInternalServerError, frametest.Post(t, url).Status)
}

// Without a run, the error goes to middleware outside, as if there were no guard.
func TestErrorWithoutARunIsReturned(t *testing.T) {
	t.Parallel()
	var got error
	observe := func(c fiber.Ctx) error {
		got = c.Next()
		return got
	}
	guarded, _ := newGuard(t, idempotency.WithMethods(http.MethodPut))
	require.Equal(t, http.StatusUnprocessableEntity, frametest.Post(t, serve(t, fiber.New(), observe, guarded, declined)).Status)
	require.ErrorContains(t, got, "declined")
}

// A route behind two guards on one store runs once, behind the outer one.
func TestNestedMiddleware(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	url := serve(t, fiber.New(), fiberidempotency.Middleware(guard), fiberidempotency.Middleware(guard), declined)
	first, retry := frametest.Post(t, url), frametest.Post(t, url)
	require.Equal(t, http.StatusUnprocessableEntity, first.Status)
	require.True(t, retry.Replayed)
	require.Equal(t, first.Body, retry.Body)
	require.Len(t, events(idempotency.EventNested), 1)
}

// The router answers 404 and 405 itself, and may know the route tomorrow. A handler's 404 is an
// answer.
func TestNoRouteIsNotRecorded(t *testing.T) {
	t.Parallel()
	for path, status := range map[string]int{"/nowhere": 404, "/reading": 405} {
		guarded, _ := newGuard(t)
		app := fiber.New()
		app.Use(guarded)
		app.Get("/reading", declined)
		url := listen(t, app) + path
		first := frametest.Post(t, url)
		require.Equal(t, status, first.Status)
		require.Equal(t, first, frametest.Post(t, url))
	}
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(), guarded, func(fiber.Ctx) error { return fiber.ErrNotFound })
	require.Equal(t, http.StatusNotFound, frametest.Post(t, url).Status)
	require.True(t, frametest.Post(t, url).Replayed)
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
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &b)
	require.NoError(t, err)
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Idempotency-Key", "upload")
	r.Header.Set(frametest.TenantHeader, "tenant")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return frametest.Answer{Status: resp.StatusCode, Body: string(body), Replayed: resp.Header.Get("Idempotent-Replayed") == "true"}
}

// fasthttp parses a form before any handler runs, and keeps its parts in no order. The same form is
// the same payload all the same.
func TestFormsAreCompared(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]fiber.Config{
		"parsed": {}, "not parsed": {DisablePreParseMultipartForm: true}, "streamed": {StreamRequestBody: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	for name, size := range map[string]int{"error": -1, "short": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	for name, drop := range map[string]fiber.Handler{
		"in silence": func(c fiber.Ctx) error { return c.Drop() },
		"after an answer": func(c fiber.Ctx) error {
			return errors.Join(c.Status(fiber.StatusCreated).SendString("charged"), c.Drop())
		},
		"with an error": func(c fiber.Ctx) error { return errors.Join(c.Drop(), fiber.ErrPaymentRequired) },
	} {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			t.Run(name+"/"+recovery.String(), func(t *testing.T) {
				t.Parallel()
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
					return slices.ContainsFunc(events(idempotency.EventRun), func(e idempotency.Event) bool {
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
	t.Parallel()
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
			t.Parallel()
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
	t.Parallel()
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
			runs := events(idempotency.EventRun)
			require.Len(t, runs, 1)
			require.Equal(t, idempotency.Unknown, runs[0].Outcome)
		})
	}
	close(release)
	<-done
}

// A handler that says nothing is reported.
func TestSilentHandlerIsReported(t *testing.T) {
	t.Parallel()
	guarded, events := newGuard(t, idempotency.WithSilence(idempotency.Unknown))
	url := serve(t, fiber.New(), guarded, func(fiber.Ctx) error { return nil })
	require.Equal(t, frametest.Answer{Status: 200}, frametest.Post(t, url))
	require.Equal(t, frametest.Answer{Status: 200}, frametest.Post(t, url))
	require.Len(t, events(idempotency.EventSilent), 1)
	require.Equal(t, "POST /charges", events(idempotency.EventSilent)[0].Route)
}

// The scope can be the user of basicauth.
func TestScope(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, fiberidempotency.Scope(fiberidempotency.User))
	auth := basicauth.New(basicauth.Config{Authorizer: func(user, password string, _ fiber.Ctx) bool { return user == "alice" && password == "secret" }})
	url := serve(t, fiber.New(), auth, fiberidempotency.Middleware(guard), declined)
	require.Equal(t, http.StatusUnprocessableEntity, frametest.Post(t, url).Status)
	require.Equal(t, "alice", events(idempotency.EventRun)[0].Scope)

	url = serve(t, fiber.New(), fiberidempotency.Middleware(guard), declined)
	require.Equal(t, http.StatusUnauthorized, frametest.Post(t, url).Status)

	url = frametest.ServeHTTP(t, guard.Handler(adaptor.FiberApp(fiber.New())))
	require.Equal(t, http.StatusForbidden, frametest.Post(t, url).Status)
	refused := events(idempotency.EventRefused)
	require.ErrorContains(t, refused[len(refused)-1].Err, "fiberidempotency.Middleware")

	require.Panics(t, func() { fiberidempotency.Middleware(nil) })
	require.Panics(t, func() { fiberidempotency.Scope(nil) })
}

// With fiber's adaptor for middleware, the handler runs when the guard is done. The guard knows that,
// and refuses each request with a key before anything runs. The log says what to do.
func TestAdaptorIsRefused(t *testing.T) {
	t.Parallel()
	guard, events := frametest.NewGuard(t, frametest.HeaderScope)
	runs := 0
	charge := func(c fiber.Ctx) error {
		runs++
		return c.SendString("charged")
	}
	got := frametest.Post(t, serve(t, fiber.New(), adaptor.HTTPMiddleware(guard.Handler), charge))
	require.Equal(t, http.StatusServiceUnavailable, got.Status)
	require.Zero(t, runs)
	refused := events(idempotency.EventRefused)
	require.Len(t, refused, 1)
	require.ErrorContains(t, refused[0].Err, "fiberidempotency")

	// What fiber answers in time is protected: a handler of net/http, and the whole app.
	h := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "charged") }))
	handler := func(t *testing.T) string { return serve(t, fiber.New(), adaptor.HTTPHandler(h)) }
	whole := func(t *testing.T) string {
		app := fiber.New()
		app.Post("/whole", charge)
		guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
		return frametest.ServeHTTP(t, guard.Handler(adaptor.FiberApp(app))) + "/whole"
	}
	for _, start := range []func(*testing.T) string{handler, whole} {
		url := start(t)
		frametest.Post(t, url)
		require.Equal(t, frametest.Answer{Status: http.StatusOK, Body: "charged", Replayed: true}, frametest.Post(t, url))
	}
}

// A scope is kept for events and the log. It does not change when fiber uses its memory again.
func TestScopeIsCopied(t *testing.T) {
	t.Parallel()
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
	for _, e := range events(idempotency.EventRun) {
		scopes = append(scopes, e.Scope)
	}
	require.Equal(t, tenants, scopes)
}

// Fiber serves targets that net/url cannot parse. A guard compares them as they came.
func TestTargetThatCannotBeParsed(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error {
		c.Response().Header.SetNoDefaultContentType(true)
		return c.SendString("done")
	})
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		r.Header.Set(frametest.TenantHeader, "a")
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "done", string(body))
		require.NotContains(t, resp.Header, "Content-Type")
	}
}
