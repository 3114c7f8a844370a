package idempotency_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
)

// A server may forget the scripts at any moment, between any two commands: requests do
// not notice, and none runs twice.
func TestRedisScriptsForgottenUnderLoad(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	answers := [...]string{"small", strings.Repeat("large ", 5000)}
	for name, opts := range map[string][]idempotency.RedisOption{
		"alone":    nil,
		"replicas": {idempotency.WithReplicas(1, 5*time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &counter{handler: func(w http.ResponseWriter, r *http.Request, run int64) {
				_, _ = fmt.Fprint(w, run, " ")
				_, _ = io.WriteString(w, answers[run%2])
			}}
			p := newRedisProcess(t, redisAt(t, master, opts...), h)
			const clients, each = 4, 50
			ended := make(chan struct{})
			var traffic, flushes sync.WaitGroup
			for n := range clients {
				traffic.Go(func() {
					for i := range each {
						c := call{key: fmt.Sprintf("%s-%d-%d", name, n, i)}
						first, again := p.attempt(t, c), p.attempt(t, c)
						if first.status != http.StatusOK || first.replayed() || !again.replayed() || again.body != first.body {
							t.Errorf("%s: %d, then %d, replayed: %v", c.key, first.status, again.status, again.replayed())
						}
					}
				})
			}
			flushes.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						master.Do(t, "SCRIPT", "FLUSH")
					}
				}
			})
			traffic.Wait()
			close(ended)
			flushes.Wait()
			require.EqualValues(t, clients*each, h.runs.Load())
			for _, err := range p.events.errors() {
				require.NotContains(t, err.Error(), "NOSCRIPT")
			}
		})
	}
}
