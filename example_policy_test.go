package idempotency_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"example.com/idempotency"
)

// The answer says how long the client may go on repeating its request.
func ExampleWithExpiryHeader() {
	guard := guardFor(idempotency.WithTTL(time.Hour), idempotency.WithExpiryHeader(idempotency.ExpiryHeader))
	r := httptest.NewRequest(http.MethodPost, "/charges", http.NoBody)
	r.Header.Set("Idempotency-Key", "key-1")
	w := httptest.NewRecorder()
	guard.Handler(http.HandlerFunc(charge)).ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Idempotency-TTL"))
	// Output: 201 3600
}
