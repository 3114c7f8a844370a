package frametest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TooLarge checks a handler of POST /charges whose framework takes bodies of ten bytes, in front of the guard: a
// longer one is too large, also if it does not say how long it is.
func TooLarge(t *testing.T, h http.Handler) {
	t.Helper()
	for _, length := range []int64{11, -1} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader("12345678901"))
		r.ContentLength = length
		r.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, "length %d: %s", length, w.Body)
	}
}
