package idempotency_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/redistest"
)

// A redisProcess is a process of an application whose records are in Redis. Two of them
// that work with the same servers stand for two replicas of one application. What the
// servers and the network do is real, and so is time: what these tests wait for has
// generous deadlines, and a run that keeps its lease by renewals has one of six seconds at
// least: on a busy machine a turn may take more than one.
type redisProcess struct {
	*server
	guard  *idempotency.Guard
	store  *idempotency.RedisStore
	events *events
}

func newRedisProcess(t testing.TB, store *idempotency.RedisStore, h http.Handler, opts ...idempotency.Option) *redisProcess {
	t.Helper()
	p := &redisProcess{store: store, events: &events{}}
	p.guard = newGuard(t, store, append([]idempotency.Option{idempotency.WithObserver(p.events.observe)}, opts...)...)
	p.server = serveRecorder(t, p.guard.Handler(h))
	// A test that has failed while its servers are away must not wait for them.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), redisPatience)
		defer cancel()
		_ = p.guard.Shutdown(ctx)
	})
	return p
}

// sideBySide runs a subtest for each case, all at the same time. They wait more than they
// work, which is not what the -parallel flag reckons with.
func sideBySide[T any](t *testing.T, cases map[string]T, test func(t *testing.T, c T)) {
	t.Helper()
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range cases {
		all.Go(func() { t.Run(name, func(t *testing.T) { test(t, c) }) })
	}
}

// begin makes a request that the test does not wait for.
func (s *server) begin(t *testing.T, c call) <-chan reply {
	t.Helper()
	done := make(chan reply, 1)
	go func() { done <- s.attempt(t, c) }()
	return done
}

// An interrupted handler answers with the number of its run. Its first run stops in the
// middle, for the test to do something meanwhile; the others pass.
type interrupted struct {
	counter
	begun chan struct{} // closed when the first run has got to the middle
	goOn  func()        // lets it go on from there
	then  func(w http.ResponseWriter, r *http.Request)
}

// interrupt returns a handler whose first run does then, if that is not nil, when it
// goes on.
func interrupt(then func(w http.ResponseWriter, r *http.Request)) *interrupted {
	wait := make(chan struct{})
	h := &interrupted{begun: make(chan struct{}), goOn: sync.OnceFunc(func() { close(wait) }), then: then}
	h.handler = func(w http.ResponseWriter, r *http.Request, run int64) {
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

// start begins the first run and returns when it has got to the middle.
func (h *interrupted) start(t *testing.T, p *redisProcess, c call) <-chan reply {
	t.Helper()
	t.Cleanup(h.goOn) // also when the test has failed
	done := p.begin(t, c)
	<-h.begun
	return done
}

// requireReplay asks until the answer is a replay, and that of no other run.
func (p *redisProcess) requireReplay(t *testing.T, c call, body string) {
	t.Helper()
	var got reply
	require.Eventually(t, func() bool {
		got = p.do(t, c)
		return got.status == http.StatusOK
	}, redisPatience, 20*time.Millisecond)
	require.True(t, got.replayed())
	require.Equal(t, body, got.body)
}

// acknowledge claims keys of its own from several goroutines at once, until ctx is done or
// the store has acknowledged enough of them, and returns those that it has.
func acknowledge(ctx context.Context, s *idempotency.RedisStore, enough int) map[string]idempotency.Claim {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	acknowledged := make(map[string]idempotency.Claim)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for ctx.Err() == nil {
				key, c := redisKey(), redisClaim()
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
	}
	clients.Wait()
	return acknowledged
}

// countLost returns how many of the claims, none of which has ended, the store would
// grant to somebody else.
func countLost(t *testing.T, s *idempotency.RedisStore, acknowledged map[string]idempotency.Claim) int {
	t.Helper()
	var lost atomic.Int64
	keys := make(chan string)
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for key := range keys {
				r, err := s.Claim(t.Context(), key, redisClaim())
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

// redisAt is a store on one server, with a client of its own.
func redisAt(t testing.TB, server *redistest.Server, opts ...idempotency.RedisOption) *idempotency.RedisStore {
	t.Helper()
	return redisStore(t, redisClient(t, server.Addr), opts...)
}

// redisClientAt is redisClient for one address, with further options.
func redisClientAt(t testing.TB, addr string, change func(*redis.Options)) redis.UniversalClient {
	t.Helper()
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true}
	change(o)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
