package fiberidempotency_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// What nobody has read of a body is not the next request on its connection, whatever the guard has answered:
// fasthttp reads it, or ends the connection.
func TestRestOfAStreamIsNoRequest(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	require.NoError(t, err)
	app := fiber.New(fiber.Config{StreamRequestBody: true})
	app.Get("/:name", func(c fiber.Ctx) error { return c.SendString(c.Params("name")) })
	url := serve(t, app, fiberidempotency.Middleware(guard), func(c fiber.Ctx) error {
		return c.Status(fiber.StatusCreated).SendString(fmt.Sprint(len(c.Body())))
	})

	const inside, after = "GET /inside HTTP/1.1\r\nHost: test\r\n\r\n", "GET /after HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
	for key, status := range map[string]int{"a b": http.StatusBadRequest, "": http.StatusBadRequest, "%d": http.StatusCreated} {
		for pad := 8 << 10; pad < 9<<10; pad += 64 {
			body := strings.Repeat("\r\n", pad/2) + inside
			for _, framed := range []string{declared(len(body), body), chunked(body) + "0\r\n\r\n"} {
				field := ""
				if key != "" {
					field = "Idempotency-Key: " + strings.Replace(key, "%d", fmt.Sprint("k", len(framed)), 1) + "\r\n"
				}
				answers := dial(t, url, field+framed)
				got, _, err := readAnswer(answers.from)
				require.NoError(t, err)
				require.Equal(t, status, got)
				_, err = io.WriteString(answers.conn, after)
				require.NoError(t, err)
				_, second, err := readAnswer(answers.from)
				require.NoError(t, err)
				require.Equal(t, "after", second, "key %q, %d bytes", key, len(body))
			}
		}
	}
}

func declared(length int, body string) string {
	return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", length, body)
}

// chunked is a body in one chunk, without the last one, which ends it.
func chunked(body string) string {
	return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
}

// A dialed is a connection to a server, and what comes from there.
type dialed struct {
	conn *net.TCPConn
	from *bufio.Reader
}

// dial sends a POST, of which rest is the last fields and the body.
func dial(t testing.TB, to, rest string) dialed {
	u, err := url.Parse(to)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, "POST "+u.Path+" HTTP/1.1\r\nHost: test\r\nX-Tenant: tenant\r\nContent-Type: text/plain\r\n"+rest)
	require.NoError(t, err)
	return dialed{conn.(*net.TCPConn), bufio.NewReader(conn)}
}

// readAnswer reads the next answer on a connection.
func readAnswer(from *bufio.Reader) (status int, body string, err error) {
	answer, err := http.ReadResponse(from, nil)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}

// This file is about bodies of which only a part arrives. fasthttp hides that from handlers.

// A part of a body is not taken for the whole one: nothing runs, and the whole request gets the key. Where
// middleware outside has read a stream, nobody can tell the two apart unless its length was declared.
func TestBodyThatBreaksOffIsNotRun(t *testing.T) {
	body := strings.Repeat("row\n", 5000)
	half := body[:len(body)/2]
	whole := map[string]string{"declared": declared(len(body), body), "chunked": chunked(body) + "0\r\n\r\n"}
	outside := map[string]fiber.Handler{
		"nobody": fiber.Ctx.Next,
		"body":   func(c fiber.Ctx) error { _ = c.Body(); return c.Next() },
	}
	for reads, handler := range outside {
		for name, part := range map[string]string{
			"declared":                declared(len(body), half),
			"chunked":                 chunked(half),
			"chunked, of a few bytes": chunked("row"),
			"chunked, in a chunk":     chunked(body)[:len(half)],
			"chunked, in the last":    chunked(half) + "0\r",
		} {
			t.Run(reads+"/"+name, func(t *testing.T) {
				guarded, events := newGuard(t)
				var runs atomic.Int64
				url := serve(t, fiber.New(fiber.Config{StreamRequestBody: true}), handler, guarded, func(c fiber.Ctx) error {
					runs.Add(1)
					return c.SendString(string(c.Body()))
				})
				const rest = "Idempotency-Key: key\r\n"
				sent := dial(t, url, rest+part)
				require.NoError(t, sent.conn.CloseWrite())
				status, answer, err := readAnswer(sent.from)
				require.NoError(t, err)
				require.Equal(t, http.StatusBadRequest, status, answer)
				require.Contains(t, answer, problem.BodyUnreadable)
				require.Equal(t, reads != "nobody", strings.Contains(answer, "a handler in front of the guard"))
				require.Zero(t, runs.Load())
				require.Len(t, events(event.Refused), 1)

				framing, _, _ := strings.Cut(name, ",")
				status, answer, err = readAnswer(dial(t, url, rest+whole[framing]).from)
				require.NoError(t, err)
				if reads != "nobody" && framing == "chunked" {
					require.Equal(t, http.StatusBadRequest, status, answer)
					return
				}
				require.Equal(t, http.StatusOK, status, answer)
				require.Equal(t, body, answer)
				require.EqualValues(t, 1, runs.Load())
			})
		}
	}
}

// A client whose source fails has sent whole chunks, and closes its connection.
func TestUploadWhoseSourceFails(t *testing.T) {
	guarded, events := newGuard(t)
	url := serve(t, fiber.New(fiber.Config{StreamRequestBody: true}), guarded, func(c fiber.Ctx) error { return c.SendString(string(c.Body())) })
	failed := errors.New("the source failed")
	send := func(source io.Reader) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, source)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "key")
		r.Header.Set(frametest.TenantHeader, "tenant")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = resp.Body.Close() }()
		got, err := io.ReadAll(resp.Body)
		return string(got), err
	}
	from, to := io.Pipe()
	go func() {
		_, _ = io.WriteString(to, "first row\n")
		_ = to.CloseWithError(failed)
	}()
	_, err := send(from)
	require.ErrorIs(t, err, failed)
	require.Eventually(t, func() bool { return len(events(event.Refused)) == 1 }, 10*time.Second, time.Millisecond)
	require.Equal(t, problem.BodyUnreadable, events(event.Refused)[0].Code)

	got, err := send(io.MultiReader(strings.NewReader("first row\n"), strings.NewReader("second row\n")))
	require.NoError(t, err)
	require.Equal(t, "first row\nsecond row\n", got)
}

// Middleware outside can hand on a body of its own, if it says how long that is.
func TestBodyThatMiddlewareHasPutBack(t *testing.T) {
	guarded, _ := newGuard(t)
	url := serve(t, fiber.New(fiber.Config{StreamRequestBody: true}), func(c fiber.Ctx) error {
		c.Request().SetBodyString("other")
		c.Request().Header.SetContentLength(len("other"))
		return c.Next()
	}, guarded, func(c fiber.Ctx) error { return c.SendString(string(c.Body())) })
	_, answer, err := readAnswer(dial(t, url, "Idempotency-Key: key\r\n"+chunked("body")+"0\r\n\r\n").from)
	require.NoError(t, err)
	require.Equal(t, "other", answer)
}

// adaptor.FiberApp leaves out what is above the limit of the app, and goes on with the rest.
func TestBodyThatTheAdaptorHasCut(t *testing.T) {
	const limit = 1000
	echo := func(c fiber.Ctx) error { return c.SendString(string(c.Body())) }
	for name, serve := range map[string]func(*testing.T, *fiber.App) string{
		"adaptor": func(t *testing.T, app *fiber.App) string { return frametest.ServeHTTP(t, adaptor.FiberApp(app)) },
		"server":  func(t *testing.T, app *fiber.App) string { return listen(t, app) },
	} {
		for _, size := range []int{limit - 1, limit, limit + 1} {
			guarded, events := newGuard(t)
			app := fiber.New(fiber.Config{BodyLimit: limit})
			app.Post("/charges", guarded, echo)
			body := strings.Repeat("x", size)
			sent := dial(t, serve(t, app)+"/charges", "Idempotency-Key: key\r\n"+chunked(body)+"0\r\n\r\n")
			status, answer, err := readAnswer(sent.from)
			require.NoError(t, err)
			switch {
			case size < limit, size == limit && name == "server":
				require.Equal(t, body, answer, name)
			default:
				require.Equal(t, http.StatusRequestEntityTooLarge, status, name)
				require.Empty(t, events(event.Run), name)
			}
		}
	}
}

// A guard that only looks on does not count a part of a body as a payload.
func TestShadowOfABodyThatBreaksOff(t *testing.T) {
	for name, part := range map[string]string{"declared": declared(20000, strings.Repeat("x", 10000)), "chunked": chunked("row")} {
		guarded, events := newGuard(t, idempotency.WithShadow(true))
		url := serve(t, fiber.New(fiber.Config{StreamRequestBody: true}), guarded, func(c fiber.Ctx) error { return c.SendString(string(c.Body())) })
		require.NoError(t, dial(t, url, "Idempotency-Key: key\r\n"+part).conn.CloseWrite())
		require.ErrorContains(t, frametest.LastShadow(t, events, 1).Err, "has not read the body", name)
	}
}
