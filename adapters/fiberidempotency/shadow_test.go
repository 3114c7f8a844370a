package fiberidempotency_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	fiberown "github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
)

// This file is about what a shadow must leave as it is.

// With a guard that only looks on, handlers and middleware have what they would have without it:
// their errors, their streams, and a response that nobody has copied.
func TestShadowChangesNothing(t *testing.T) {
	untyped := func(c fiber.Ctx) error {
		c.Response().Header.SetNoDefaultContentType(true)
		return c.SendString("done")
	}
	stream := func(c fiber.Ctx) error { return c.SendString(fmt.Sprint(c.Request().BodyStream() != nil)) }
	body := func(c fiber.Ctx) error { return c.SendString(string(c.Body())) }
	for name, test := range map[string]struct {
		config  fiber.Config
		outside fiber.Handler
		handler fiber.Handler
		status  int // as the guard sees it
		unread  bool
	}{
		"answer":           {fiber.Config{}, fiber.Ctx.Next, body, 200, false},
		"no type":          {fiber.Config{}, fiber.Ctx.Next, untyped, 200, false},
		"no stream":        {fiber.Config{}, fiber.Ctx.Next, stream, 200, false},
		"streamed request": {fiber.Config{StreamRequestBody: true}, fiber.Ctx.Next, stream, 200, true},
		"read at once":     {fiber.Config{StreamRequestBody: true}, fiber.Ctx.Next, body, 200, false},
		"streamed answer": {fiber.Config{}, fiber.Ctx.Next, func(c fiber.Ctx) error {
			return c.SendStream(strings.NewReader("stream"))
		}, 200, false},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func(guarded fiber.Handler) (answer frametest.Answer, seen string) {
				observe := func(c fiber.Ctx) error {
					err := c.Next()
					seen = fmt.Sprint(err, c.Response().StatusCode(), c.Response().IsBodyStream(), string(c.Response().Header.ContentType()))
					return err
				}
				return frametest.Post(t, serve(t, fiber.New(test.config), observe, test.outside, guarded, test.handler)), seen
			}
			guarded, events := newGuard(t, idempotency.WithShadow(true))
			want, wantSeen := ask(fiber.Ctx.Next)
			got, seen := ask(guarded)
			require.Equal(t, want, got)
			require.Equal(t, wantSeen, seen)
			e := frametest.LastShadow(t, events, 1)
			require.Equal(t, test.status, e.Status)
			if test.unread {
				require.ErrorContains(t, e.Err, "has not read the body")
				return
			}
			require.Equal(t, event.Run, e.Would)
			require.NoError(t, e.Err)
		})
	}
}

// Fiber's own middleware keeps answers, and no errors. Behind it, a guard that only looks on leaves
// that so.
func TestShadowBehindFibersOwnMiddleware(t *testing.T) {
	guarded, _ := newGuard(t, idempotency.WithShadow(true))
	runs := 0
	app := fiber.New()
	own := fiberown.New(fiberown.Config{KeyHeader: "Idempotency-Key", KeyHeaderValidate: func(string) error { return nil }})
	url := serve(t, app, own, guarded, func(c fiber.Ctx) error {
		if runs++; runs == 1 {
			return fiber.ErrServiceUnavailable
		}
		return c.SendString("done")
	})
	require.Equal(t, http.StatusServiceUnavailable, frametest.Post(t, url).Status)
	require.Equal(t, "done", frametest.Post(t, url).Body)
	require.Equal(t, "done", frametest.Post(t, url).Body)
	require.Equal(t, 2, runs)
}

// A guard that only looks on knows that nobody gets the answer of a handler that drops its connection.
func TestShadowOfADroppedConnection(t *testing.T) {
	guarded, events := newGuard(t, idempotency.WithShadow(true))
	url := serve(t, fiber.New(), guarded, func(c fiber.Ctx) error { return c.Drop() })
	require.Equal(t, frametest.Answer{}, frametest.Post(t, url), "the connection is cut")
	require.Equal(t, idempotency.Unknown, frametest.LastShadow(t, events, 1).Outcome)
}

// A timeout outside answers while the handler still runs. A guard that only looks on leaves the
// response alone then.
func TestShadowBehindATimeout(t *testing.T) {
	guarded, events := newGuard(t, idempotency.WithShadow(true))
	url := serve(t, fiber.New(), timeout.New(fiber.Ctx.Next, timeout.Config{Timeout: 20 * time.Millisecond}), guarded, func(c fiber.Ctx) error {
		<-c.Context().Done()
		return c.Context().Err()
	})
	require.Equal(t, http.StatusRequestTimeout, frametest.Post(t, url).Status)
	require.Equal(t, idempotency.Unknown, frametest.LastShadow(t, events, 1).Outcome)
}
