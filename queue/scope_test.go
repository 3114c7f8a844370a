package queue_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/queue"
)

// A caller that is called like the scope of a queue neither finds the records of its messages nor stands
// in their way.
func TestCallerIsNoQueue(t *testing.T) {
	t.Parallel()
	guard, err := idempotency.New(idempotency.NewMemoryStore(), func(r *http.Request) (string, error) {
		user, _, _ := r.BasicAuth()
		return user, nil
	})
	require.NoError(t, err)
	requests := &guardtest.Counter{}
	h := guard.Handler(requests)
	message := queue.Message{Queue: "orders", ID: "1"}
	for user, want := range map[string]int{message.Key().Scope: http.StatusForbidden, "queue:orders": http.StatusCreated, "orders": http.StatusCreated} {
		r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
		r.SetBasicAuth(user, "any")
		r.Header.Set("Idempotency-Key", message.ID)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, want, w.Code, "%q", user)
	}
	require.EqualValues(t, 2, requests.Runs.Load())
	runs := 0
	for range 2 {
		todo, err := queue.Handle(t.Context(), guard, message, func(context.Context) error { runs++; return nil })
		require.NoError(t, err)
		require.Equal(t, queue.Ack, todo)
	}
	require.Equal(t, 1, runs)
}
