package redisclient

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A relay sends commands through the hooks of a client, and then with a copy of the client, which
// has no hooks. The client takes no part: its own commands are none of the relay's business.
//
// It embeds no client: the compiler would write its six hundred methods once more.
type relay struct {
	same *redis.Client // the copy
	// hooks has the hooks that the client had at the first call. A Conn is the only thing in
	// go-redis that gets the hooks of a client and can be given another one. The connection that
	// a Conn is made for, and because of which it must not be shared, is never fetched: the hook
	// that is added last sends the commands another way.
	hooks func() *redis.Conn
}

func newRelay(client, same *redis.Client) *relay {
	return &relay{same, sync.OnceValue(func() *redis.Conn {
		hooks := client.Conn()
		hooks.AddHook(sender{same})
		return hooks
	})}
}

// Process sends a command.
func (r *relay) Process(ctx context.Context, cmd redis.Cmder) error {
	return r.hooks().Process(entrust(ctx), cmd)
}

// Pipeline returns a pipeline, of which only Exec sends anything.
func (r *relay) Pipeline() redis.Pipeliner { return pipeline{r.hooks().Pipeline()} }

// TxPipeline is Pipeline for a transaction.
func (r *relay) TxPipeline() redis.Pipeliner { return pipeline{r.hooks().TxPipeline()} }

// Subscribe returns what hears the channels, on a connection of its own.
func (r *relay) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return r.same.Subscribe(ctx, channels...)
}

type pipeline struct{ redis.Pipeliner }

func (p pipeline) Exec(ctx context.Context) ([]redis.Cmder, error) {
	return p.Pipeliner.Exec(entrust(ctx))
}

// A sender is the innermost hook, which sends what has come through the others.
type sender struct{ client *redis.Client }

func (sender) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s sender) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, cancel, err := entrusted(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		return s.client.Process(ctx, cmd)
	}
}

func (s sender) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, cancel, err := entrusted(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		pipe := s.client.Pipeline()
		if len(cmds) > 2 && cmds[0].Name() == "multi" { // it ends with exec, and both are added again
			pipe, cmds = s.client.TxPipeline(), cmds[1:len(cmds)-1]
		}
		_ = pipe.BatchProcess(ctx, cmds...)
		_, err = pipe.Exec(ctx)
		return err
	}
}

// caller is the key under which a context has the context that the caller has passed.
type caller struct{}

// entrust returns the context that goes through the hooks.
func entrust(ctx context.Context) context.Context { return context.WithValue(ctx, caller{}, ctx) }

var errContextLost = errors.New("a hook of the client does not pass on the context of the command, so its deadline is not known")

// entrusted returns the context that the hooks have made of the caller's, with its deadline if they
// have taken it away or made it later.
func entrusted(ctx context.Context) (context.Context, context.CancelFunc, error) {
	own, ok := ctx.Value(caller{}).(context.Context)
	if !ok {
		return nil, nil, errContextLost
	}
	end, ends := own.Deadline()
	if now, set := ctx.Deadline(); !ends || set && !now.After(end) {
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	return ctx, cancel, nil
}
