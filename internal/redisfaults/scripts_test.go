package redisfaults

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
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// A server may forget its scripts between any two commands. Requests do not notice, and
// nothing runs twice.
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
			h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, run int64) {
				_, _ = fmt.Fprint(w, run, " ")
				_, _ = io.WriteString(w, answers[run%2])
			}}
			p := newRedisProcess(t, guardtest.RedisAt(t, master, opts...), h)
			const clients, each = 4, 50
			ended := make(chan struct{})
			var traffic, flushes sync.WaitGroup
			for n := range clients {
				traffic.Go(func() {
					for i := range each {
						c := guardtest.Call{Key: fmt.Sprintf("%s-%d-%d", name, n, i)}
						first, again := p.Attempt(t, c), p.Attempt(t, c)
						if first.Status != http.StatusOK || first.Replayed() || !again.Replayed() || again.Body != first.Body {
							t.Errorf("%s: %d, then %d, replayed: %v", c.Key, first.Status, again.Status, again.Replayed())
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
			require.EqualValues(t, clients*each, h.Runs.Load())
			for _, err := range p.events.Errors() {
				require.NotContains(t, err.Error(), "NOSCRIPT")
			}
		})
	}
}
