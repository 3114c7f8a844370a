package fiberidempotency_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// This file is about bodies of which only a part arrives. fasthttp hides that from handlers.

// A part of a body is not taken for the whole one: nothing runs, and the whole request gets the key. Where
// middleware outside has read a stream, nobody can tell the two apart unless its length was declared.
func TestBodyThatBreaksOffIsNotRun(t *testing.T) {
	t.Parallel()
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
				t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	for name, part := range map[string]string{"declared": declared(20000, strings.Repeat("x", 10000)), "chunked": chunked("row")} {
		guarded, events := newGuard(t, idempotency.WithShadow(true))
		url := serve(t, fiber.New(fiber.Config{StreamRequestBody: true}), guarded, func(c fiber.Ctx) error { return c.SendString(string(c.Body())) })
		require.NoError(t, dial(t, url, "Idempotency-Key: key\r\n"+part).conn.CloseWrite())
		require.Eventually(t, func() bool { return len(events(event.Shadow)) == 1 }, 10*time.Second, time.Millisecond)
		require.ErrorContains(t, events(event.Shadow)[0].Err, "has not read the body", name)
	}
}
