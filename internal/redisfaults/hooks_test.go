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

// notes are the names of commands, but for those that set a connection up.
type notes struct {
	mu   sync.Mutex
	seen []string
}

// hook notes what goes through it.
func (n *notes) hook(ctx context.Context, s sending) error {
	for _, cmd := range s.cmds {
		n.note(cmd.Name())
	}
	return s.next(ctx)
}

func (n *notes) note(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name != "hello" && name != "client" {
		n.seen = append(n.seen, name)
	}
}

// take returns what was seen since the last call.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.seen
	n.seen = nil
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
			var sent, early, later, late notes // sent is what is really sent
			client := newClient(t, &redis.Options{
				Addr: server.Addr, ContextTimeoutEnabled: obeys,
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					return &notedConn{c, &sent}, err
				},
			}, early.hook)
			st := guardtest.RedisStore(t, client)
			client.AddHook(hook(later.hook))
			ctx := t.Context()
			require.NoError(t, st.Check(ctx))
			client.AddHook(hook(late.hook))
			key, claim := guardtest.RedisKey(), guardtest.RedisClaim()
			claim.Hold = true
			for _, answer := range [][]byte{[]byte("small"), guardtest.LargeAnswer} {
				claimed(t, st, key, claim)
				require.NoError(t, st.SaveStep(ctx, key, claim.Owner, "step", nil))
				require.NoError(t, st.Complete(ctx, key, claim.Owner, store.Completion{Answer: answer, TTL: time.Hour}))
				require.Equal(t, answer, claimed(t, st, key, claim).Answer)
				r, err := st.GetAnswer(ctx, key)
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
			for _, n := range []*notes{&early, &later, &late} {
				require.Contains(t, n.take(), "ping", "the client's own commands")
			}
		})
	}
}

// A notedConn notes the commands that are written to it.
type notedConn struct {
	net.Conn
	to *notes
}

func (c *notedConn) Write(b []byte) (int, error) {
	for line := range bytes.SplitSeq(b, []byte("\r\n*")) {
		if words := bytes.Split(line, []byte("\r\n")); len(words) > 2 {
			c.to.note(string(words[2]))
		}
	}
	return c.Conn.Write(b)
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
	start := func(t *testing.T, change func(context.Context) context.Context) *idempotency.RedisStore {
		o := &redis.Options{Addr: server.Addr, ReadTimeout: time.Hour, WriteTimeout: time.Hour}
		return guardtest.RedisStore(t, newClient(t, o, func(ctx context.Context, s sending) error { return s.next(change(ctx)) }))
	}
	for name, change := range map[string]func(context.Context) context.Context{
		"the same":         func(ctx context.Context) context.Context { return ctx },
		"no deadline":      context.WithoutCancel,
		"a later deadline": func(ctx context.Context) context.Context { return lateContext{ctx} },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, change)
			claimed(t, s, guardtest.RedisKey(), guardtest.RedisClaim())
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
	var claims, passed atomic.Int32 // passed counts the scripts that the server knew
	client := newClient(t, &redis.Options{Addr: server.Addr}, func(ctx context.Context, s sending) error {
		err := s.next(ctx)
		if err == nil && !s.pipeline {
			passed.Add(1)
		}
		return err
	})
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
				client.AddHook(hook(new(notes).hook))
			}
		})
	}
	users.Wait()
	require.Equal(t, claims.Load(), passed.Load())
}

// A hook that swallows what has happened to a command does not make an outcome of it: the caller
// may be the owner.
func TestRedisHookThatSwallows(t *testing.T) {
	t.Parallel()
	client := newClient(t, &redis.Options{}, func(context.Context, sending) error { return nil })
	s, ctx, key, c := guardtest.RedisStore(t, client), t.Context(), guardtest.RedisKey(), guardtest.RedisClaim()
	_, err := s.Claim(ctx, key, c)
	require.Error(t, err)
	for name, err := range map[string]error{
		"Renew":    s.Renew(ctx, key, c.Owner),
		"SaveStep": s.SaveStep(ctx, key, c.Owner, "step", nil),
		"Complete": s.Complete(ctx, key, c.Owner, store.Completion{TTL: time.Hour}),
		"large":    s.Complete(ctx, key, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}),
		"Release":  s.Release(ctx, key, c.Owner, store.Release{}),
		"Hold":     s.Hold(ctx, key, c.Owner, nil),
		"Forget":   s.Forget(ctx, key, store.Seen{}),
	} {
		require.ErrorContains(t, err, "returned nothing", name)
		require.NotErrorIs(t, err, store.ErrNotOwner, name)
		require.NotErrorIs(t, err, idempotency.ErrChanged, name)
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
		claimed(t, plain, key, c)
	}
	require.NoError(t, plain.Complete(ctx, large, c.Owner, store.Completion{Answer: guardtest.LargeAnswer, TTL: time.Hour}))

	guardtest.Each(t, map[string]error{"nothing": nil, "an error": errHook}, func(t *testing.T, err error) {
		// without says what a call returns when nothing is sent of the commands of that name, and the client hears
		// that all went well. In a pipeline, each command has an error all the same if err is set.
		without := func(command, argument string, call func(s *idempotency.RedisStore) error) {
			t.Helper()
			swallows := func(cmd redis.Cmder) bool {
				return cmd.Name() == command && slices.ContainsFunc(cmd.Args(), func(arg any) bool {
					return strings.Contains(fmt.Sprint(arg), argument)
				})
			}
			client := newClient(t, &redis.Options{Addr: server.Addr}, func(ctx context.Context, s sending) error {
				if !slices.ContainsFunc(s.cmds, swallows) {
					return s.next(ctx)
				}
				if s.pipeline {
					_ = s.fail(err)
				}
				return nil
			})
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

var errHook = errors.New("the hook fails")

// failing returns a hook that fails three pipelines of four, and every fifth of the other commands: in turn
// before the command is sent, and after the server has executed it. It counts the calls of each script
// and record for itself, so that none fails more than three times in a row, whatever runs beside it.
func failing() hook {
	var inARow sync.Map // of *atomic.Int64
	var commands, failures atomic.Int64
	return func(ctx context.Context, s sending) error {
		var of string
		for _, cmd := range s.cmds {
			if args := cmd.Args(); cmd.Name() == "evalsha" {
				of = fmt.Sprint(args[1], args[3])
			}
		}
		counted, _ := inARow.LoadOrStore(of, new(atomic.Int64))
		row := counted.(*atomic.Int64)
		if !s.pipeline && commands.Add(1)%5 != 0 || row.Add(1)%4 == 0 {
			row.Store(0)
			return s.next(ctx)
		}
		if failures.Add(1)%2 == 0 {
			_ = s.next(ctx)
		}
		return s.fail(errHook)
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
				client := newClient(t, &redis.Options{Addr: server.Addr}, failing())
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
