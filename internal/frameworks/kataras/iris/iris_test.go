// Package iris stands for the framework of that name, by its path.
package iris

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// fromStd is iris.FromStd of a middleware. The handler of iris that follows it writes to a writer of iris, whatever
// writer the middleware hands on.
//
//go:noinline
func fromStd(w http.ResponseWriter, r *http.Request, middleware func(http.ResponseWriter, *http.Request, http.HandlerFunc), handler http.Handler) {
	middleware(w, r, func(_ http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) })
}

// An answer of iris goes past the guard. It reaches its client, and is not replayed as an empty 200.
func TestAnswersOfIrisAreNotKept(t *testing.T) {
	for _, status := range []int{http.StatusCreated, http.StatusPaymentRequired, http.StatusInternalServerError} {
		var events guardtest.Events
		guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe))
		runs := 0
		post := func() *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/charges", nil)
			r.Header.Set("Idempotency-Key", "k")
			fromStd(w, r, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
				guard.Handler(next).ServeHTTP(w, r)
			}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs++
				w.WriteHeader(status)
			}))
			return w
		}
		require.Equal(t, status, post().Code)
		retry := post()
		require.Equal(t, http.StatusConflict, retry.Code)
		require.Contains(t, retry.Body.String(), problem.ResponseNotKept)
		require.Equal(t, 1, runs)
		require.Equal(t, 1, events.Count(event.Silent))
	}
}

// A handler of net/http can mean an empty 200, and say so.
func TestSilenceThatIsMeantInIris(t *testing.T) {
	var events guardtest.Events
	guard := guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithObserver(events.Observe), idempotency.WithSilence(idempotency.Final))
	for _, replayed := range []string{"", "true"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/charges", nil)
		r.Header.Set("Idempotency-Key", "k")
		fromStd(w, r, func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			guard.Handler(next).ServeHTTP(w, r)
		}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, replayed, w.Header().Get("Idempotent-Replayed"))
	}
	require.Zero(t, events.Count(event.Silent))
}
