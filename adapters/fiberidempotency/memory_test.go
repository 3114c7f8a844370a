package fiberidempotency_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"example.com/idempotency"
	"example.com/idempotency/adapters/fiberidempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// This file is about memory that fasthttp uses again: what outlives a request is a copy.

// An awayStore records no answer while it is away.
type awayStore struct {
	*idempotency.MemoryStore
	away atomic.Bool
}

func (s *awayStore) Complete(ctx context.Context, key string, o store.Owner, c store.Completion) error {
	if s.away.Load() {
		return errors.New("the store is away")
	}
	return s.MemoryStore.Complete(ctx, key, o, c)
}

// A quietConn is a connection on which nothing happens.
type quietConn struct{ net.Conn }

func (quietConn) SetWriteDeadline(time.Time) error { return nil }

func (quietConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 40000} }

func (quietConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 80} }

// exchange serves a request in the memory of the one before, lets look see the answer, and spoils all that memory.
func exchange(h fasthttp.RequestHandler, c *fasthttp.RequestCtx, body string, look func(*fasthttp.Response)) {
	c.Request.Reset()
	c.Response.Reset()
	c.ResetUserValues()
	c.Init2(quietConn{}, nil, false)
	c.Request.Header.SetMethod("PATCH")
	c.Request.SetRequestURI("/charges/c-1?currency=eur")
	c.Request.Header.SetHost("bank.example")
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": "key-1", "X-Tenant": "tenant-1", "X-Many": "one",
	} {
		c.Request.Header.Set(name, value)
	}
	c.Request.Header.Add("X-Many", "two")
	c.Request.SetBodyString(body)
	c.Request.Header.SetContentLength(len(body))
	h(c)
	look(&c.Response)
	spoil := func(b []byte) { copy(b, strings.Repeat("#", len(b))) }
	for _, header := range []func(func([]byte, []byte) bool){c.Request.Header.All(), c.Response.Header.All()} {
		for _, value := range header {
			spoil(value)
		}
	}
	spoil(c.Request.Header.RequestURI())
	spoil(c.Request.URI().QueryString())
	spoil(c.Request.URI().Path())
	spoil(c.Request.Body())
	spoil(c.Response.Body())
}

func TestNothingOfARequestIsInMemoryThatIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &awayStore{MemoryStore: idempotency.NewMemoryStore()}
		var events []event.Event
		var kept *http.Request
		var inBackground context.Context
		guard, err := idempotency.New(st, frametest.HeaderScope, idempotency.WithLogger(slog.New(slog.DiscardHandler)),
			idempotency.WithObserver(func(ctx context.Context, e event.Event) { events = append(events, e) }),
			idempotency.WithFingerprint(func(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
				kept = r
				return idempotency.RawFingerprint(r, body)
			}))
		require.NoError(t, err)
		app := fiber.New()
		runs := 0
		app.Patch("/charges/:id", fiberidempotency.Middleware(guard), func(c fiber.Ctx) error {
			runs++
			inBackground = c.Context()
			c.Set("Content-Type", "text/csv")
			c.Set("X-Charge", c.Params("id"))
			return c.Status(fiber.StatusCreated).SendString("charged," + string(c.Body()))
		})
		h, c := app.Handler(), new(fasthttp.RequestCtx)

		// The answer is recorded when the memory of its request is somebody else's already.
		st.away.Store(true)
		answered := func(replayed string) func(*fasthttp.Response) {
			return func(r *fasthttp.Response) {
				require.Equal(t, http.StatusCreated, r.StatusCode(), string(r.Body()))
				require.Equal(t, "charged,100", string(r.Body()))
				require.Equal(t, "text/csv", string(r.Header.ContentType()))
				require.Equal(t, "c-1", string(r.Header.Peek("X-Charge")))
				require.Equal(t, replayed, string(r.Header.Peek("Idempotent-Replayed")))
			}
		}
		exchange(h, c, "100", answered(""))
		first := kept
		op, ok := idempotency.FromContext(inBackground)
		require.True(t, ok)
		exchange(h, c, "200", func(r *fasthttp.Response) { require.Equal(t, http.StatusConflict, r.StatusCode()) })
		st.away.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		exchange(h, c, "100", answered("true"))
		require.Equal(t, 1, runs)

		require.Equal(t, idempotency.Key{Scope: "tenant-1", Value: "key-1"}, op.Key())
		require.Equal(t, []string{"one", "two"}, first.Header["X-Many"])
		require.Equal(t, []string{"Content-Length", "Content-Type", "Idempotency-Key", "X-Many", "X-Tenant"}, slices.Sorted(maps.Keys(first.Header)))
		require.Equal(t, "key-1 application/json tenant-1", first.Header.Get("Idempotency-Key")+" "+first.Header.Get("Content-Type")+" "+first.Header.Get("X-Tenant"))
		require.Equal(t, "PATCH bank.example /charges/c-1?currency=eur /charges/c-1 currency=eur 192.0.2.1:40000 PATCH /charges/:id",
			strings.Join([]string{first.Method, first.Host, first.RequestURI, first.URL.Path, first.URL.RawQuery, first.RemoteAddr, first.Pattern}, " "))
		require.NotEmpty(t, events)
		for _, e := range events {
			require.Equal(t, "tenant-1 PATCH PATCH /charges/:id", e.Scope+" "+e.Method+" "+e.Route, e.Kind)
		}
		require.NoError(t, guard.Shutdown(t.Context()))
	})
}

// A function of the program that keeps a refused request, whose body nobody has read, does not read that of another one.
func TestBodyEndsWithItsRequest(t *testing.T) {
	var kept *http.Request
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope, idempotency.WithStrictKeys(true),
		idempotency.WithErrorWriter(func(_ http.ResponseWriter, r *http.Request, _ problem.Document) { kept = r }))
	app := fiber.New()
	app.Patch("/charges/:id", fiberidempotency.Middleware(guard), charged)
	exchange(app.Handler(), new(fasthttp.RequestCtx), "100", func(*fasthttp.Response) {})
	left, err := kept.Body.Read(make([]byte, 8))
	require.Equal(t, io.EOF, err)
	require.Zero(t, left)
}
