package storefaults

// Outages that last longer than a lease, on routes where a lapsed claim holds its key.

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
)

// Of a claim whose reply was lost, and of a run that did nothing, nothing is unknown. The
// store was away when the guard said so, and another request has found the lapsed claim
// meanwhile. Once the store is back, the key must be free.
func TestOutageUnderHoldHoldsNothing(t *testing.T) {
	t.Parallel()
	const lease = 200 * time.Millisecond
	outages := map[string]struct {
		begin  func(s *guardtest.FaultStore)
		status int
	}{
		"a claim without a reply": {func(s *guardtest.FaultStore) {
			s.Fail(guardtest.Refuse)
			s.On("claim", guardtest.Always(guardtest.LoseReply))
		}, http.StatusServiceUnavailable},
		"a run that did nothing": {func(s *guardtest.FaultStore) {
			s.Fail(guardtest.Refuse)
			s.On("claim", nil)
		}, http.StatusTooManyRequests},
	}
	for kind, start := range guardtest.SharedStores {
		for name, outage := range outages {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				shared := start(t)
				opts := []idempotency.Option{idempotency.WithRecovery(idempotency.Hold), idempotency.WithLease(lease)}
				a := guardtest.NewProcess(t, shared, &guardtest.Counter{Handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
					w.WriteHeader(http.StatusTooManyRequests)
				}}, opts...)
				b := guardtest.NewProcess(t, shared, guardtest.Answering(0, "done"), opts...)

				outage.begin(a.Store)
				require.Equal(t, outage.status, a.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Eventually(t, func() bool {
					return b.Attempt(t, guardtest.Call{Key: "k"}).Problem.Code == problem.OutcomeUnknown
				}, guardtest.RedisPatience, 20*time.Millisecond, "the claim does not lapse")
				time.Sleep(2 * lease) // the outage goes on

				a.Store.Heal()
				require.Eventually(t, func() bool {
					return b.Attempt(t, guardtest.Call{Key: "k"}).Body == "done"
				}, guardtest.RedisPatience, 20*time.Millisecond, "a key is held of which nothing ever ran")
			})
		}
	}
}
