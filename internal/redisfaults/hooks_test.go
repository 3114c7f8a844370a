package redisfaults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
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
	"example.com/idempotency/store"
)

// A passiveHook notes the names of the commands that go through it, but for those that set a
// connection up.
type passiveHook struct {
	mu   sync.Mutex
	seen []string
}

func (h *passiveHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *passiveHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.note(cmd.Name())
		return next(ctx, cmd)
	}
}

func (h *passiveHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.note(cmd.Name())
		}
		return next(ctx, cmds)
	}
}

func (h *passiveHook) note(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name != "hello" && name != "client" {
		h.seen = append(h.seen, name)
	}
}

// take returns what was seen since the last call.
func (h *passiveHook) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := h.seen
	h.seen = nil
	return seen
}

// Hooks that a client has at the first call of a store see all its commands. Those that are added
// later see them if the client obeys contexts.
func TestRedisHooks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, obeys := range map[string]bool{"default": false, "obeys": true} {
		t.Run(name, func(t *testing.T) {
			server.Do(t, "FLUSHALL")
			var sent passiveHook // what is really sent
			client := redis.NewClient(&redis.Options{
				Addr: server.Addr, ContextTimeoutEnabled: obeys,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					return &notedConn{c, &sent}, err
				},
			})
			t.Cleanup(func() { _ = client.Close() })
			var early, later, late passiveHook
			client.AddHook(&early)
			st := guardtest.RedisStore(t, client)
			client.AddHook(&later)
			ctx := t.Context()
			require.NoError(t, st.Check(ctx))
			client.AddHook(&late)
			key, claim := guardtest.RedisKey(), guardtest.RedisClaim()
			claim.Hold = true
			for _, answer := range [][]byte{[]byte("small"), guardtest.LargeAnswer} {
				_, err := st.Claim(ctx, key, claim)
				require.NoError(t, err)
				require.NoError(t, st.SaveStep(ctx, key, claim.Owner, "step", nil))
				require.NoError(t, st.Complete(ctx, key, claim.Owner, store.Completion{Answer: answer, TTL: time.Hour}))
				r, err := st.Claim(ctx, key, claim)
				require.NoError(t, err)
				require.Equal(t, answer, r.Answer)
				r, err = st.GetAnswer(ctx, key)
				require.NoError(t, err)
				require.Equal(t, answer, r.Answer)
				key = guardtest.RedisKey()
			}
			for _, holding := range []bool{false, true} {
				_, err := st.List(ctx, store.Query{Holding: holding})
				require.NoError(t, err)
			}
			all := sent.take()
			require.Contains(t, all, "scan")
			require.Contains(t, all, "multi")
			require.Equal(t, all, early.take())
			require.Equal(t, all, later.take())
			if seen := late.take(); obeys {
				require.Equal(t, all[len(all)-len(seen):], seen)
				require.NotEmpty(t, seen)
			} else {
				require.Empty(t, seen)
			}
			require.NoError(t, client.Ping(ctx).Err())
			for _, hook := range []*passiveHook{&early, &later, &late} {
				require.Contains(t, hook.take(), "ping", "the client's own commands")
			}
		})
	}
}

// A notedConn notes the commands that are written to it.
type notedConn struct {
	net.Conn
	to *passiveHook
}

func (c *notedConn) Write(b []byte) (int, error) {
	for line := range bytes.SplitSeq(b, []byte("\r\n*")) {
		if words := bytes.Split(line, []byte("\r\n")); len(words) > 2 {
			c.to.note(string(words[2]))
		}
	}
	return c.Conn.Write(b)
}

// A contextHook passes another context on.
type contextHook func(context.Context) context.Context

func (contextHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h contextHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(h(ctx), cmd) }
}

func (h contextHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return next(h(ctx), cmds) }
}

// A lateContext ends when nobody waits any more.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (lateContext) Done() <-chan struct{}       { return nil }
func (lateContext) Err() error                  { return nil }

// A hook may make of a context what it likes: the call returns by its deadline, or fails at once
// because nobody knows it.
func TestRedisHooksKeepDeadlines(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	start := func(t *testing.T, hook contextHook) *idempotency.RedisStore {
		client := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Hour, WriteTimeout: time.Hour})
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(hook)
		return guardtest.RedisStore(t, client)
	}
	for name, hook := range map[string]contextHook{
		"the same":         func(ctx context.Context) context.Context { return ctx },
		"no deadline":      context.WithoutCancel,
		"a later deadline": func(ctx context.Context) context.Context { return lateContext{ctx} },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, hook)
			_, err := s.Claim(t.Context(), guardtest.RedisKey(), guardtest.RedisClaim())
			require.NoError(t, err)
			server.Pause(t)
			defer server.Resume(t)
			for name, call := range storeCalls(s, guardtest.RedisKey(), guardtest.RedisClaim()) {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				require.ErrorIs(t, call(ctx), context.DeadlineExceeded, name)
				cancel()
			}
		})
	}
	t.Run("another context", func(t *testing.T) {
		s := start(t, func(context.Context) context.Context { return context.Background() })
		for name, call := range storeCalls(s, guardtest.RedisKey(), guardtest.RedisClaim()) {
			if name != "Watch" { // no command
				require.ErrorContains(t, call(t.Context()), "does not pass on the context", name)
			}
		}
		require.ErrorContains(t, s.Check(t.Context()), "does not pass on the context")
	})
}

// Stores of one client call it at the same time, while hooks are added to it.
func TestRedisHooksAreAddedMeanwhile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	hook, claims := new(countingHook), atomic.Int32{}
	client.AddHook(hook)
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for range 5 {
				st := idempotency.NewRedisStore(client)
				for range 3 {
					users.Go(func() {
						claims.Add(1)
						if _, err := st.Claim(context.WithoutCancel(t.Context()), guardtest.RedisKey(), guardtest.RedisClaim()); err != nil {
							t.Error(err)
						}
					})
				}
				client.AddHook(new(passiveHook))
			}
		})
	}
	users.Wait()
	require.Equal(t, claims.Load(), hook.claims.Load())
}

// A countingHook counts scripts that the server knows.
type countingHook struct {
	passiveHook
	claims atomic.Int32
}

func (h *countingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil {
			h.claims.Add(1)
		}
		return err
	}
}

// A swallowingHook executes nothing, and says that all went well.
type swallowingHook struct{ passiveHook }

func (*swallowingHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return nil }
}

func (*swallowingHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return nil }
}

// A hook that swallows what has happened to a command does not make an outcome of it: the caller
// may be the owner.
func TestRedisHookThatSwallows(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(new(swallowingHook))
	s, ctx, key, c := guardtest.RedisStore(t, client), t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
	_, err := s.Claim(ctx, key, c)
	require.Error(t, err)
	for name, err := range map[string]error{
		"Renew":    s.Renew(ctx, key, c.Owner),
		"SaveStep": s.SaveStep(ctx, key, c.Owner, "step", nil),
		"Complete": s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}),
		"large":    s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}),
		"Release":  s.Release(ctx, key, c.Owner, store.Release{}),
		"Hold":     s.Hold(ctx, key, c.Owner),
		"Forget":   s.Forget(ctx, key, store.Seen{}),
	} {
		require.ErrorContains(t, err, "returned nothing", name)
		require.NotErrorIs(t, err, store.ErrNotOwner, name)
		require.NotErrorIs(t, err, idempotency.ErrChanged, name)
	}
}

// A replySwallowingHook says that all went well of the commands that it is for, of which it executes
// nothing. In a pipeline, each command has an error all the same if err is set.
type replySwallowingHook struct {
	passiveHook
	swallows func(cmd redis.Cmder) bool
	err      error
}

func (h *replySwallowingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.swallows(cmd) {
			return nil
		}
		return next(ctx, cmd)
	}
}

func (h *replySwallowingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, h.swallows) {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(h.err)
		}
		return nil
	}
}

// A reply that a hook swallows does not say that there is no record, or that an answer is empty.
func TestRedisHookThatSwallowsReplies(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	plain, ctx, large, held := guardtest.RedisAt(t, server), t.Context(), guardtest.RedisKey(), guardtest.RedisKey()
	c := guardtest.RedisClaim()
	c.Hold = true
	for _, key := range []string{large, held} {
		_, err := plain.Claim(ctx, key, c)
		require.NoError(t, err)
	}
	require.NoError(t, plain.Complete(ctx, large, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))

	for name, err := range map[string]error{"nothing": nil, "an error": errHook} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// without says what a call returns when the commands of that name get no reply.
			without := func(command, argument string, call func(s *idempotency.RedisStore) error) {
				t.Helper()
				client := redis.NewClient(&redis.Options{Addr: server.Addr})
				t.Cleanup(func() { _ = client.Close() })
				swallows := func(cmd redis.Cmder) bool {
					return cmd.Name() == command && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
						return strings.Contains(fmt.Sprint(arg), argument)
					})
				}
				client.AddHook(&replySwallowingHook{swallows: swallows, err: err})
				failure := call(guardtest.RedisStore(t, client))
				require.Error(t, failure, "%s %s", command, argument)
				for _, said := range []error{idempotency.ErrNotFound, idempotency.ErrCorrupt, idempotency.ErrUnreadableHere} {
					require.NotErrorIs(t, failure, said, "%s %s", command, argument)
				}
			}
			list := func(holding bool) func(*idempotency.RedisStore) error {
				return func(s *idempotency.RedisStore) error {
					_, err := s.List(ctx, store.Query{Holding: holding})
					return err
				}
			}
			without("hgetall", large, func(s *idempotency.RedisStore) error {
				_, err := s.GetAnswer(ctx, large)
				return err
			})
			without("evalsha", large, func(s *idempotency.RedisStore) error {
				_, err := s.Get(ctx, large)
				return err
			})
			without("hget", large, func(s *idempotency.RedisStore) error {
				_, err := s.Claim(ctx, large, guardtest.RedisClaim())
				return err
			})
			without("evalsha", "index", func(s *idempotency.RedisStore) error {
				claim := guardtest.RedisClaim()
				claim.Hold = true
				_, err := s.Claim(ctx, guardtest.RedisKey(), claim)
				return err
			})
			without("scan", "", list(false))
			without("hmget", "", list(false))
			without("evalsha", "index", list(true))
			without("evalsha", held, list(true))
		})
	}
}

// A failingHook fails three pipelines of four, and every fifth of the other commands: in turn before
// the command is sent, and after the server has executed it. It counts the pipelines of each script
// and record for itself, so that none fails more than three times in a row.
type failingHook struct {
	passiveHook
	pipelines          sync.Map // of *atomic.Int64
	commands, failures atomic.Int64
}

var errHook = errors.New("the hook fails")

func (h *failingHook) fail(fails bool, cmds []redis.Cmder, next func() error) error {
	if !fails {
		return next()
	}
	if h.failures.Add(1)%2 == 0 {
		_ = next()
	}
	for _, cmd := range cmds {
		cmd.SetErr(errHook)
	}
	return errHook
}

func (h *failingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.fail(h.commands.Add(1)%5 == 0, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h *failingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var of string
		for _, cmd := range cmds {
			if args := cmd.Args(); cmd.Name() == "evalsha" {
				of = fmt.Sprint(args[1], args[3])
			}
		}
		n, _ := h.pipelines.LoadOrStore(of, new(atomic.Int64))
		return h.fail(n.(*atomic.Int64).Add(1)%4 != 0, cmds, func() error { return next(ctx, cmds) })
	}
}

// Under a hook that fails again and again, each request runs once, and its answer and its step are
// recorded, whatever their size.
func TestRedisHookThatFails(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, answer := range []string{"small", string(guardtest.LargeAnswer[:8<<10]), string(guardtest.LargeAnswer)} {
		t.Run(fmt.Sprint(len(answer)), func(t *testing.T) {
			t.Parallel()
			guardtest.OnEachRecovery(t, func(t *testing.T, recovery idempotency.Option, _ guardtest.Fate) {
				t.Parallel()
				client := redis.NewClient(&redis.Options{Addr: server.Addr})
				t.Cleanup(func() { _ = client.Close() })
				client.AddHook(new(failingHook))
				h := &guardtest.Counter{Handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					if _, err := idempotency.Step(r.Context(), "charge", func(context.Context) (string, error) { return answer, nil }); err != nil {
						t.Error(err)
					}
					_, _ = w.Write([]byte(answer))
				}}
				p := newRedisProcess(t, guardtest.RedisStore(t, client), h, recovery)
				for n := range 6 {
					call := guardtest.Call{Key: guardtest.RedisKey()}
					var got guardtest.Reply
					require.Eventually(t, func() bool {
						got = p.Do(t, call)
						return got.Status == http.StatusOK && got.Replayed() || got.Problem.Code == problem.ResponseNotKept
					}, guardtest.Patience, time.Millisecond)
					require.Equal(t, answer, got.Body)
					require.EqualValues(t, n+1, h.Runs.Load())
				}
				require.Zero(t, p.events.Count(event.NotKept))
			})
		})
	}
}
