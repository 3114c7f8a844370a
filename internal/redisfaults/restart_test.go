package redisfaults

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A server dies during a run and comes back. Whether it had persisted anything makes no
// difference to that run, as long as nobody asks for the key before it ends.
func TestRedisRestartDuringRun(t *testing.T) {
	t.Parallel()
	sideBySide(t, map[string]bool{"appendonly yes": true, "appendonly no": false}, func(t *testing.T, persistent bool) {
		var args []string
		if persistent {
			args = []string{"--appendonly", "yes", "--appendfsync", "always"}
		}
		server := redistest.Start(t, args...)
		t.Run("the run ends afterwards", func(t *testing.T) {
			h := interrupt(nil)
			a, b := newRedisProcess(t, guardtest.RedisAt(t, server), h), newRedisProcess(t, guardtest.RedisAt(t, server), h)
			done := h.start(t, a, guardtest.Call{Key: "after"})
			server.Kill()
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "after"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			server.Restart(t)
			if persistent {
				guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "after"}), http.StatusConflict, problem.InFlight)
			}
			h.goOn()
			require.Equal(t, "run 1", (<-done).Body)
			b.requireReplay(t, guardtest.Call{Key: "after"}, "run 1")
			require.EqualValues(t, 1, h.Runs.Load())
		})
		t.Run("the run ends meanwhile", func(t *testing.T) {
			h := interrupt(nil)
			a, b := newRedisProcess(t, guardtest.RedisAt(t, server), h), newRedisProcess(t, guardtest.RedisAt(t, server), h)
			done := h.start(t, a, guardtest.Call{Key: "meanwhile"})
			server.Kill()
			h.goOn()
			got := <-done
			require.Equal(t, "run 1", got.Body, "the client gets the answer that there is")
			require.Equal(t, 1, a.events.Count(event.RecordingDelayed))
			guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "meanwhile"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
			server.Restart(t)
			// Without persistence the key is free until the answer has been recorded.
			require.NoError(t, a.guard.Shutdown(t.Context()))
			b.requireReplay(t, guardtest.Call{Key: "meanwhile"}, "run 1")
			require.EqualValues(t, 1, h.Runs.Load())
		})
	})
}

// What kill -9 of a server costs. Without an append-only file it loses everything. With one
// that is synced before each reply it loses nothing. In between, a server may postpone a
// write while it syncs earlier ones, and then it loses writes that it has acknowledged.
func TestRedisKillUnderLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args      []string
		all, none bool
	}{
		"no persistence":       {nil, true, false},
		"appendfsync everysec": {[]string{"--appendonly", "yes", "--appendfsync", "everysec"}, false, false},
		"appendfsync always":   {[]string{"--appendonly", "yes", "--appendfsync", "always"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, test.args...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(500*time.Millisecond, func() { server.Kill(); cancel() })
			acknowledged := acknowledge(ctx, guardtest.RedisAt(t, server), -1)
			require.NotEmpty(t, acknowledged)
			server.Restart(t)
			lost := countLost(t, guardtest.RedisAt(t, server), acknowledged)
			t.Logf("%d of %d acknowledged claims lost", lost, len(acknowledged))
			if test.all {
				require.Equal(t, len(acknowledged), lost)
			}
			if test.none {
				require.Zero(t, lost)
			}
		})
	}
}
