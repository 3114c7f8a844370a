package wiretest

import (
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A gateway with a guard in front of a service with a guard. The two have stores of their
// own, and the same key.

// While the service is still at work for somebody else, the gateway has no answer to record.
func TestGatewayDoesNotRecordThatTheServiceIsBusy(t *testing.T) {
	t.Parallel()
	guardtest.OnEachServer(t, func(t *testing.T, serve func(http.Handler) *guardtest.Server) {
		begun, finish := make(chan struct{}), make(chan struct{})
		charges := &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			close(begun)
			<-finish
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "charged")
		}}
		service := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(charges))
		proxy := proxyToServer(t, service)
		gateway := serve(guardtest.NewGuard(t, idempotency.NewMemoryStore()).Handler(proxy))

		call := guardtest.Call{Key: "k"}
		done := make(chan guardtest.Reply, 1)
		go func() { done <- service.Attempt(t, call) }()
		<-begun
		guardtest.RequireProblem(t, gateway.Do(t, call), http.StatusConflict, problem.InFlight)
		close(finish)
		require.Equal(t, http.StatusCreated, (<-done).Status)

		got := gateway.Do(t, call)
		require.Equal(t, http.StatusCreated, got.Status, got.Body)
		require.Equal(t, "charged", got.Body)
		require.True(t, gateway.Do(t, call).Replayed())
		require.EqualValues(t, 1, charges.Runs.Load())
	})
}
