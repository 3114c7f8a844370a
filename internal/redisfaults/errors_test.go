package redisfaults

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
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

// A failure that a server or the client reports, on every call.
type failing struct {
	redis.Hook
	err atomic.Pointer[error]
}

func (f *failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.err.Load(); err != nil {
			cmd.SetErr(*err)
			return *err
		}
		return next(ctx, cmd)
	}
}

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := f.err.Load(); err != nil {
			return *err
		}
		return next(ctx, cmds)
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
		hook := &failing{}
		client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true, MaxRetries: -1})
		client.AddHook(hook)
		hook.err.Store(&err)
		store := guardtest.RedisStore(t, client)
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
		require.NoError(t, client.Close())
	}
}
