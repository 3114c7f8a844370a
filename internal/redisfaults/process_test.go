package redisfaults

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/redistest"
	"example.com/idempotency/store"
)

// A redisProcess is a process of an application that keeps its records in Redis. Two of
// them on the same servers are two replicas of one application. Servers, network and time
// are real, so deadlines in these tests are generous. A run that keeps its lease by
// renewals has at least six seconds of lease, because a busy machine may be late by more
// than one.
type redisProcess struct {
	*guardtest.Server
	guard  *idempotency.Guard
	store  *idempotency.RedisStore
	events *guardtest.Events
}

func newRedisProcess(t testing.TB, st *idempotency.RedisStore, h http.Handler, opts ...idempotency.Option) *redisProcess {
	t.Helper()
	p := &redisProcess{store: st, events: &guardtest.Events{}}
	p.guard = guardtest.NewGuard(t, st, append([]idempotency.Option{idempotency.WithObserver(p.events.Observe)}, opts...)...)
	p.Server = guardtest.ServeRecorder(t, p.guard.Handler(h))
	// A failed test must not wait for servers that are away.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guardtest.Patience)
		defer cancel()
		_ = p.guard.Shutdown(ctx)
	})
	return p
}

// sideBySide runs a subtest for each case, all at the same time. The subtests wait more
// than they work, so -parallel does not limit them.
func sideBySide[T any](t *testing.T, cases map[string]T, test func(t *testing.T, c T)) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range cases {
		all.Go(func() { t.Run(name, func(t *testing.T) { test(t, c) }) })
	}
}

// An interrupted handler answers with the number of its run. Its first run stops in the
// middle until the test lets it continue; later runs do not stop.
type interrupted struct {
	guardtest.Counter
	begun chan struct{} // closed when the first run has got to the middle
	goOn  func()        // lets it go on from there
	then  func(w http.ResponseWriter, r *http.Request)
}

// interrupt returns a handler whose first run calls then, unless that is nil, when it
// continues.
func interrupt(then func(w http.ResponseWriter, r *http.Request)) *interrupted {
	wait := make(chan struct{})
	h := &interrupted{begun: make(chan struct{}), goOn: sync.OnceFunc(func() { close(wait) }), then: then}
	h.Handler = func(w http.ResponseWriter, r *http.Request, run int64) {
		if run == 1 {
			close(h.begun)
			<-wait
			if h.then != nil {
				h.then(w, r)
				return
			}
		}
		_, _ = fmt.Fprintf(w, "run %d", run)
	}
	return h
}

// start begins the first run and returns when it has reached the middle.
func (h *interrupted) start(t *testing.T, p *redisProcess, c guardtest.Call) <-chan guardtest.Reply {
	t.Helper()
	t.Cleanup(h.goOn) // also when the test has failed
	done := p.Begin(t, c)
	select {
	case <-h.begun:
	case got := <-done:
		t.Fatalf("no run has begun: %d %s", got.Status, got.Body)
	}
	return done
}

// requireReplay asks until it gets an answer, which must be the replay of that body.
func (p *redisProcess) requireReplay(t *testing.T, c guardtest.Call, body string) {
	t.Helper()
	var got guardtest.Reply
	require.Eventually(t, func() bool {
		got = p.Do(t, c)
		return got.Status == http.StatusOK
	}, guardtest.Patience, 20*time.Millisecond)
	require.True(t, got.Replayed())
	require.Equal(t, body, got.Body)
}

// newClient returns a client with hooks, which is closed at the end of the test.
func newClient(t testing.TB, o *redis.Options, hooks ...hook) *redis.Client {
	t.Helper()
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for _, h := range hooks {
		client.AddHook(h)
	}
	return client
}

// A hook is in the way of the commands of a client.
type hook func(ctx context.Context, s sending) error

// A sending is a command, or a pipeline of them, on its way through a hook. next sends it.
type sending struct {
	cmds     []redis.Cmder
	pipeline bool
	next     func(context.Context) error
}

// fail gives each command of the sending an error, and returns it.
func (s sending) fail(err error) error {
	for _, cmd := range s.cmds {
		cmd.SetErr(err)
	}
	return err
}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, sending{[]redis.Cmder{cmd}, false, func(ctx context.Context) error { return next(ctx, cmd) }})
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, sending{cmds, true, func(ctx context.Context) error { return next(ctx, cmds) }})
	}
}

// claimed makes a claim that the store must answer, and recordOf looks at a record that it must have.
func claimed(t testing.TB, s *idempotency.RedisStore, key string, c store.Claim) store.Record {
	t.Helper()
	r := guardtest.Claim(t, s, key, c)
	return r
}

func recordOf(t testing.TB, s *idempotency.RedisStore, key string) store.Record {
	t.Helper()
	r := guardtest.Get(t, s, key)
	return r
}

// acknowledge claims new keys from several goroutines until ctx is done or the store has
// acknowledged enough of them, and returns the acknowledged ones.
func acknowledge(ctx context.Context, s *idempotency.RedisStore, enough int) map[string]store.Claim {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	acknowledged := make(map[string]store.Claim)
	guardtest.Together(8, func(int) {
		for ctx.Err() == nil {
			key, c := guardtest.RedisKey(), guardtest.RedisClaim()
			each, cancel := context.WithTimeout(ctx, time.Second)
			if r, err := s.Claim(each, key, c); err == nil && r.Mine {
				mu.Lock()
				acknowledged[key] = c
				if len(acknowledged) == enough {
					stop()
				}
				mu.Unlock()
			}
			cancel()
		}
	})
	return acknowledged
}

// countLost returns how many of these claims, which are all still live, the store would
// grant to another owner.
func countLost(t *testing.T, s *idempotency.RedisStore, acknowledged map[string]store.Claim) int {
	t.Helper()
	var lost atomic.Int64
	keys := make(chan string)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for key := range keys {
				r, err := s.Claim(t.Context(), key, guardtest.RedisClaim())
				if err != nil {
					t.Error(err)
				}
				if r.Mine {
					lost.Add(1)
				}
			}
		})
	}
	for key := range acknowledged {
		keys <- key
	}
	close(keys)
	clients.Wait()
	return int(lost.Load())
}

// TestMain lets the slow tests run four at a time, and not only two if there are two processors: they
// wait, too.
func TestMain(m *testing.M) {
	redistest.AtOnce(8)
	if exhaustive {
		if err := flag.Set("test.parallel", "4"); err != nil {
			panic(err)
		}
	}
	os.Exit(guardtest.Main(m))
}

var exhaustive = os.Getenv("REDIS_EXHAUSTIVE") != ""

// slow skips a test that waits for leases and servers so long that only CI and the mutants run it.
func slow(t *testing.T) {
	t.Helper()
	if !exhaustive {
		t.Skip("REDIS_EXHAUSTIVE=1 runs it")
	}
}
