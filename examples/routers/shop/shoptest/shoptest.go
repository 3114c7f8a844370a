// Package shoptest sends requests to the routes of the examples, for their tests.
package shoptest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/examples/routers/shop"
)

// An Answer is the answer that a client got.
type Answer struct {
	Status   int
	Body     string
	Replayed bool
}

// Post sends a charge for alice to a handler.
func Post(t *testing.T, h http.Handler, path, key string, amount int) Answer {
	t.Helper()
	body := fmt.Sprintf(`{"amount":%d}`, amount)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer token-of-alice")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return Answer{w.Code, strings.TrimSpace(w.Body.String()), w.Header().Get("Idempotent-Replayed") == "true"}
}

// NewGuard returns a guard that is shut down at the end of the test.
func NewGuard(t *testing.T) *idempotency.Guard {
	t.Helper()
	guard, err := shop.NewGuard()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, guard.Shutdown(t.Context())) })
	return guard
}

// RequireTTLs checks that an answer of /charges is replayed for a day, and one of /payouts for
// a week.
func RequireTTLs(t *testing.T, routes func(*idempotency.Guard) http.Handler) {
	t.Helper()
	for path, ttl := range map[string]time.Duration{"/charges": 24 * time.Hour, "/payouts": 7 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			handler := routes(NewGuard(t))
			first := Post(t, handler, path, "key", 100)
			require.Equal(t, http.StatusCreated, first.Status, first.Body)
			time.Sleep(ttl - time.Second)
			require.True(t, Post(t, handler, path, "key", 100).Replayed, path)
			time.Sleep(time.Second)
			require.False(t, Post(t, handler, path, "key", 100).Replayed, path)
		})
	}
}
