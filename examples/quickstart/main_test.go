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
	synctest.Test(t, func(t *testing.T) { // in its bubble a day passes at once
		guard, err := idempotency.New(idempotency.NewMemoryStore(), tenant)
		require.NoError(t, err)
		h := guard.Handler(http.HandlerFunc(createCharge))
		replayed := func() bool {
			r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(`{"amount":100}`))
			r.SetBasicAuth("alice", "secret")
			r.Header.Set("Idempotency-Key", "order-1")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusCreated, w.Code)
			return w.Header().Get("Idempotent-Replayed") == "true"
		}
		require.False(t, replayed())
		require.True(t, replayed())
		time.Sleep(24 * time.Hour) // the TTL
		require.False(t, replayed())
	})
}
