package wiretest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/client/profile"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// A gateway with a guard in front of a service with a guard. The two have stores of their
// own, and the same key.

// The client takes a refusal of the service for one of the gateway. Whatever the service says,
// what the client concludes is true of the gateway too: of its key, and of what it has done.
func TestRefusalOfTheServiceIsTrueOfTheGateway(t *testing.T) {
	t.Parallel()
	guard := profile.Guard()
	for _, code := range problem.Codes() {
		for _, recovery := range []idempotency.Recovery{idempotency.Rerun, idempotency.Hold} {
			for _, effect := range []bool{false, true} {
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					if effect {
						_, err := idempotency.Step(r.Context(), "reserve", func(context.Context) (int, error) { return 1, nil })
						if err != nil {
							t.Error(err)
						}
					}
					w.Header().Set(problem.Header, string(code))
					w.WriteHeader(problem.New(code).Status)
				}}
				gateway := guardtest.ServeRecorder(t, guardtest.NewGuard(t, idempotency.NewMemoryStore(), idempotency.WithRecovery(recovery)).Handler(h))
				got := gateway.Do(t, guardtest.Call{Key: "k"})
				means := guard.Meaning(&http.Response{StatusCode: got.Status, Header: got.Header}, nil)
				what := fmt.Sprintf("%s under %v, effect %v: the client gets %s", code, recovery, effect, got.Header.Get(problem.Header))

				again := gateway.Do(t, guardtest.Call{Key: "k"})
				held := h.Runs.Load() == 1
				if held {
					guardtest.RequireProblem(t, again, http.StatusConflict, problem.OutcomeUnknown)
					require.Contains(t, []profile.Meaning{profile.Held, profile.Lost}, means, "the key is held: %s", what)
					continue
				}
				if effect {
					require.NotContains(t, []profile.Meaning{profile.NotRun, profile.Refused, profile.Reused}, means, what)
					continue
				}
				require.Equal(t, string(code), got.Header.Get(problem.Header), "there is nothing to correct: %s", what)
			}
		}
	}
}

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
