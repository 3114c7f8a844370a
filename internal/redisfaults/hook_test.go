package redisfaults

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
)

// storeScripts returns the names that a server knows the scripts of a store by: a message
// that executes a script contains its name.
func storeScripts(t *testing.T, server *redistest.Server) map[string]string {
	t.Helper()
	client := guardtest.RedisClient(t, server.Addr)
	hook := &scriptHook{}
	client.AddHook(hook)
	store := guardtest.RedisStore(t, client)
	key, c := guardtest.RedisKey(), guardtest.RedisClaim()
	scripts := make(map[string]string)
	heard := func(call string, err error) {
		t.Helper()
		require.NoError(t, err)
		name, _ := hook.name.Swap("").(string)
		require.Len(t, name, 40, call)
		scripts[call] = name
	}
	_, err := store.Claim(t.Context(), key, c)
	heard("claim", err)
	heard("renew", store.Renew(t.Context(), key, c.Owner))
	heard("step", store.SaveStep(t.Context(), key, c.Owner, "step", []byte("value")))
	heard("settle", store.Complete(t.Context(), key, c.Owner, idempotency.Completion{TTL: time.Minute}))
	return scripts
}

// A scriptHook remembers the name of the script that was executed last.
type scriptHook struct{ name atomic.Value }

func (h *scriptHook) hear(cmd redis.Cmder) {
	if args := cmd.Args(); len(args) > 1 && cmd.Name() == "evalsha" {
		h.name.Store(args[1])
	}
}

func (h *scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *scriptHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.hear(cmd)
		return next(ctx, cmd)
	}
}

func (h *scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.hear(cmd)
		}
		return next(ctx, cmds)
	}
}
