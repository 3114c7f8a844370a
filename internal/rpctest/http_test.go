package rpctest_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/rpctest/bankv1/bankv1connect"
	"example.com/idempotency/problem"
)

// The first try: a guard around a handler of Connect. It must not record that a call has failed as
// if it had succeeded, so it refuses calls.
func TestGuardAroundAHandlerRefusesCalls(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]connect.ClientOption{
		"connect": connect.WithClientOptions(), "gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank()
			_, handler := bankv1connect.NewBankHandler(&connectBank{b})
			refusals := make(chan event.Event, 2)
			guard := newGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(func(_ context.Context, e event.Event) {
				if e.Kind == event.Refused {
					refusals <- e
				}
			}))
			c := connectClient(t, serveH2C(t, guard.Handler(handler)), protocol)
			for _, name := range []string{"plain", "code 14"} {
				got := c(t.Context(), keyed("key", name))
				require.NotZero(t, got.Code)
				refusal := <-refusals
				require.Equal(t, problem.FingerprintFailed, refusal.Code)
				require.ErrorContains(t, refusal.Err, "connectidempotency")
				require.Zero(t, b.ran(name))
			}
			send := keyed("", "plain")
			delete(send.md, "idempotency-key")
			require.Zero(t, c(t.Context(), send).Code)
		})
	}
}
