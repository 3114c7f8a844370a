package redisfaults

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/problem"
)

// What servers refuse, and what is told of it.

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

// A server quotes the arguments of a command that it does not know: names of records, owners,
// answers. Neither the log nor an event holds any of that.
func TestLogHoldsNoArgumentsOfACommand(t *testing.T) {
	t.Parallel()
	var log guardtest.LockedBuffer
	store := guardtest.RedisAt(t, redistest.Start(t, "--rename-command", "EVALSHA", `""`))
	p := newRedisProcess(t, store, &guardtest.Counter{}, idempotency.WithLease(time.Second),
		idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.Eventually(t, func() bool { // a call on a busy machine may take too long
		guardtest.RequireProblem(t, p.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
		said := strings.ReplaceAll(log.String(), "`", "'") // as Redis 6.2 quotes
		return strings.Contains(said, "ERR unknown command 'evalsha', with args beginning with: …")
	}, guardtest.Patience, time.Millisecond)
	require.NotContains(t, log.String(), "idem:")
	require.NotEmpty(t, p.events.Errors())
	for _, err := range p.events.Errors() {
		require.NotContains(t, err.Error(), "idem:")
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// What is left of an error's text is enough to find its cause, and the error is itself: it is
// found by errors.Is and errors.As.
func TestRedisErrorsAreDiscreet(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for want, err := range map[string]error{
		"ERR unknown command …":                                                            serverError("ERR unknown command 'secret', with args beginning with: 'secret'"),
		"ERR unknown command `evalsha`, with args beginning with: …":                       serverError("ERR unknown command `evalsha`, with args beginning with: `secret`, "),
		"NOPERM User api has no permissions to run the 'hget' command":                     serverError("NOPERM User api has no permissions to run the 'hget' command"),
		"ERR The user executing the script can't run this command or subcommand script: …": serverError(`ERR The user executing the script can't run this command or subcommand script: "secret`),
		"redis: can't parse map reply: …":                                                  errors.New(`redis: can't parse map reply: "secret\"secret"`),
		"redis: invalid reply: …":                                                          errors.New(`redis: invalid reply: "secret"`),
		"dial tcp: connection refused":                                                     refused,
		"MOVED 3999 127.0.0.1:6381":                                                        serverError("MOVED 3999 127.0.0.1:6381"),
		"ERR unknown command 'EVALSHA', …":                                                 serverError("ERR unknown command 'EVALSHA', 'WRONGTYPE OOM command not allowed secret'"),
	} {
		var log guardtest.LockedBuffer
		store := guardtest.RedisStore(t, newClient(t, &redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1},
			func(_ context.Context, s sending) error { return s.fail(err) }))
		events := &guardtest.Events{}
		g := guardtest.NewGuard(t, store, idempotency.WithObserver(events.Observe), idempotency.WithLease(time.Minute),
			idempotency.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		got := guardtest.ServeRecorder(t, g.Handler(&guardtest.Counter{})).Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, got, http.StatusServiceUnavailable, problem.StoreUnavailable)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, g.Shutdown(over), "it leaves nothing but the claim")
		told := 0
		for _, e := range events.All() {
			if e.Err != nil && e.Kind != event.ClaimLeft { // which may be about the shutdown alone
				told++
				require.Equal(t, "idempotency: redis: "+want, e.Err.Error())
				require.ErrorIs(t, e.Err, err)
			}
		}
		require.Positive(t, told, want)
		require.NotContains(t, log.String(), "secret")
		_, seen := store.Get(t.Context(), "key")
		require.EqualError(t, seen, "idempotency: redis: "+want)
	}
}
