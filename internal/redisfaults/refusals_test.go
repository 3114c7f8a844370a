package redisfaults

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// A server refuses commands for many reasons. For each of them the guard runs nothing and
// tells the client to come back. A run that ends meanwhile is recorded as soon as the
// server accepts commands again.
func TestRedisServerRefuses(t *testing.T) {
	t.Parallel()
	type refusal struct {
		refuse, relent func(t *testing.T, s *redistest.Server, dir string)
	}
	sideBySide(t, map[string]refusal{
		"READONLY, it is a replica": {
			func(t *testing.T, s *redistest.Server, _ string) { s.Do(t, "REPLICAOF", "127.0.0.1", "1") },
			func(t *testing.T, s *redistest.Server, _ string) { s.Do(t, "REPLICAOF", "NO", "ONE") },
		},
		"NOREPLICAS, its replicas are gone": {
			func(t *testing.T, s *redistest.Server, _ string) {
				s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
			},
			func(t *testing.T, s *redistest.Server, _ string) {
				s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
			},
		},
		"MISCONF, it cannot persist": {
			func(t *testing.T, s *redistest.Server, dir string) {
				require.NoError(t, os.Mkdir(filepath.Join(dir, "dump.rdb"), 0o700)) // in the way of the file
				s.Do(t, "CONFIG", "SET", "save", "3600 1000")
				s.Do(t, "BGSAVE")
				require.Eventually(t, func() bool {
					return s.Info(t, "persistence")["rdb_last_bgsave_status"] == "err"
				}, guardtest.Patience, 10*time.Millisecond)
			},
			func(t *testing.T, s *redistest.Server, _ string) { s.Do(t, "CONFIG", "SET", "save", "") },
		},
		"BUSY, a script runs": {
			func(t *testing.T, s *redistest.Server, _ string) {
				s.Do(t, "CONFIG", "SET", "lua-time-limit", "1")
				client := guardtest.RedisClientAt(t, s.Addr, func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = -1, -1 })
				go client.Eval(context.WithoutCancel(t.Context()), "while true do end", nil)
				require.Eventually(t, func() bool {
					return redis.HasErrorPrefix(guardtest.RedisClient(t, s.Addr).Get(t.Context(), "k").Err(), "BUSY")
				}, guardtest.Patience, 10*time.Millisecond)
			},
			func(t *testing.T, s *redistest.Server, _ string) { s.Do(t, "SCRIPT", "KILL") },
		},
		"silence, it waits for something": {
			func(t *testing.T, s *redistest.Server, _ string) { s.Do(t, "CLIENT", "PAUSE", "60000", "WRITE") },
			func(t *testing.T, s *redistest.Server, _ string) { s.Do(t, "CLIENT", "UNPAUSE") },
		},
	}, func(t *testing.T, test refusal) {
		dir := t.TempDir()
		server := redistest.Start(t, "--dir", dir)
		h, unused := interrupt(nil), &guardtest.Counter{}
		store := guardtest.RedisAt(t, server)
		a, b := newRedisProcess(t, store, h), newRedisProcess(t, store, unused)
		done := h.start(t, a, guardtest.Call{Key: "running"})
		test.refuse(t, server, dir)
		guardtest.RequireProblem(t, b.Do(t, guardtest.Call{Key: "new"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		require.Zero(t, unused.Runs.Load())
		h.goOn()
		require.Equal(t, "run 1", (<-done).Body)
		require.Equal(t, 1, a.events.Count(event.RecordingDelayed))
		test.relent(t, server, dir)
		require.NoError(t, a.guard.Shutdown(t.Context()))
		b.requireReplay(t, guardtest.Call{Key: "running"}, "run 1")
		require.Equal(t, http.StatusCreated, b.Do(t, guardtest.Call{Key: "new"}).Status)
	})
}
