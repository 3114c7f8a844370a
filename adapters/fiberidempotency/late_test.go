package fiberidempotency_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/frametest"
	"example.com/idempotency/problem"
)

// This file is about handlers of net/http in fiber.

// Where a handler of fiber puts a guard around what follows, fiber's own answer would go past it.
func TestGuardByHandIsRefused(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
	runs := 0
	url := serve(t, fiber.New(), func(c fiber.Ctx) (err error) {
		h := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { err = c.Next() }))
		if failed := adaptor.HTTPHandler(h)(c); failed != nil {
			return failed
		}
		return err
	}, func(fiber.Ctx) error {
		runs++
		return fiber.ErrInternalServerError
	})
	got := frametest.Post(t, url)
	require.Equal(t, http.StatusInternalServerError, got.Status)
	require.Contains(t, got.Body, problem.Misplaced)
	require.Zero(t, runs)
}

// A guard whose handler is in fiber's adaptor and in a server of net/http is refused only in the adaptor.
func TestGuardInTwoPlaces(t *testing.T) {
	guard, _ := frametest.NewGuard(t, frametest.HeaderScope)
	h := guard.Handler(created)
	require.Equal(t, http.StatusInternalServerError, frametest.Post(t, serve(t, fiber.New(), adaptor.HTTPHandler(h))).Status)
	require.Equal(t, http.StatusCreated, frametest.Post(t, frametest.ServeHTTP(t, h)).Status)
}

// The run is in fiber's context, which HTTPHandlerWithContext hands on.
func TestRunOfAHandlerOfNetHTTP(t *testing.T) {
	guarded, _ := newGuard(t)
	charge := func(w http.ResponseWriter, r *http.Request) {
		ctx, _ := adaptor.LocalContextFromHTTPRequest(r)
		value, err := idempotency.Step(ctx, "charge", func(context.Context) (string, error) { return "charged", nil })
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		op, _ := idempotency.FromContext(ctx)
		op.SetOutcome(idempotency.Final)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write([]byte(value))
	}
	url := serve(t, fiber.New(), guarded, adaptor.HTTPHandlerWithContext(http.HandlerFunc(charge)))
	want := frametest.Answer{Status: http.StatusInternalServerError, Body: "charged"}
	require.Equal(t, want, frametest.Post(t, url))
	want.Replayed = true
	require.Equal(t, want, frametest.Post(t, url))
}
