package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

func TestRetryOfACharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // inside, a day passes at once
		guard, err := idempotency.New(idempotency.NewMemoryStore(), tenant)
		require.NoError(t, err)
		api := authenticate(guard.Handler(http.HandlerFunc(createCharge)))
		require.Empty(t, charge(t, api, "alice's token").Header().Get("Idempotent-Replayed"))
		require.Equal(t, "true", charge(t, api, "alice's token").Header().Get("Idempotent-Replayed"))
		time.Sleep(24 * time.Hour) // the TTL
		require.Empty(t, charge(t, api, "alice's token").Header().Get("Idempotent-Replayed"))
	})
}

// charge sends the same order each time.
func charge(t *testing.T, api http.Handler, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(`{"amount":100}`))
	r.SetBasicAuth("alice", token)
	r.Header.Set("Idempotency-Key", "order-1")
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w
}

// A stranger gets 401, also where an answer is recorded.
func TestStrangersGetNoAnswer(t *testing.T) {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), tenant)
	require.NoError(t, err)
	api := authenticate(guard.Handler(http.HandlerFunc(createCharge)))
	require.Equal(t, http.StatusCreated, charge(t, api, "alice's token").Code)
	for _, token := range []string{"", "another token"} {
		got := charge(t, api, token)
		require.Equal(t, http.StatusUnauthorized, got.Code, token)
		require.Empty(t, got.Header().Get("Idempotent-Replayed"))
	}

	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", http.NoBody)
	_, err = tenant(r)
	require.Error(t, err, "a request that went around authenticate has no tenant")
}
