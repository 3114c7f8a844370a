package frametest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client"
)

// ChosenKeys tests the interceptor of a client: call makes a call, with a field of its own if it gets one, and keys are
// those that the server has got.
func ChosenKeys(t *testing.T, call func(ctx context.Context, field ...string) error, keys func() []string) {
	require.NoError(t, call(client.WithKey(t.Context(), `"chosen"`)))
	require.NoError(t, call(client.WithoutKey(t.Context())))
	require.NoError(t, call(client.WithKey(t.Context(), "chosen"), "of the call"))
	require.Equal(t, []string{`"chosen"`, "", "of the call"}, keys())
	require.ErrorIs(t, call(client.WithKey(t.Context(), "a,b")), client.ErrKeyInvalid)
	past := client.Intent{Key: "old", Expires: time.Now().Add(-time.Minute)}
	require.ErrorIs(t, call(past.Context(t.Context())), client.ErrKeyExpired)
	require.Len(t, keys(), 3)
}

// KeysOfAStep tests that in a step each attempt of the run sends the same keys.
func KeysOfAStep(t *testing.T, call func(ctx context.Context, field ...string) error, keys func() []string) {
	guard, _ := NewGuard(t, idempotency.SharedScope)
	failed := errors.New("failed")
	for range 2 {
		_, _, err := idempotency.Do(t.Context(), guard, idempotency.Key{Scope: "jobs", Value: "1"}, func(ctx context.Context) (int, error) {
			return idempotency.Step(ctx, "charge", func(ctx context.Context) (int, error) {
				return 0, errors.Join(call(ctx), call(ctx), failed)
			})
		})
		require.ErrorIs(t, err, failed)
	}
	all := keys()
	require.Len(t, all, 4)
	require.NotEqual(t, all[0], all[1])
	require.Equal(t, all[:2], all[2:])
}

// Alice sends alice's request to a handler, always with the same key, and tells what she gets.
func Alice(h http.Handler, path string) string {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(`{"amount":100}`))
	r.SetBasicAuth("alice", "alice's password")
	r.Header.Set("Idempotency-Key", "order-1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()), " replayed: ", w.Header().Get("Idempotent-Replayed") == "true")
}
