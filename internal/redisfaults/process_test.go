package redisfaults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
)

// A redisProcess is a process of an application whose records are in Redis. Two of them
// that work with the same servers stand for two replicas of one application. What the
// servers and the network do is real, and so is time: what these tests wait for has
// generous deadlines, and a run that keeps its lease by renewals has one of six seconds at
// least: on a busy machine a turn may take more than one.
type redisProcess struct {
	*guardtest.Server
	guard  *idempotency.Guard
	store  *idempotency.RedisStore
	events *guardtest.Events
}

func newRedisProcess(t testing.TB, store *idempotency.RedisStore, h http.Handler, opts ...idempotency.Option) *redisProcess {
	t.Helper()
	p := &redisProcess{store: store, events: &guardtest.Events{}}
	p.guard = guardtest.NewGuard(t, store, append([]idempotency.Option{idempotency.WithObserver(p.events.Observe)}, opts...)...)
	p.Server = guardtest.ServeRecorder(t, p.guard.Handler(h))
	// A test that has failed while its servers are away must not wait for them.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), guardtest.RedisPatience)
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

// An interrupted handler answers with the number of its run. Its first run stops in the
// middle, for the test to do something meanwhile; the others pass.
type interrupted struct {
	guardtest.Counter
	begun chan struct{} // closed when the first run has got to the middle
	goOn  func()        // lets it go on from there
	then  func(w http.ResponseWriter, r *http.Request)
}

// interrupt returns a handler whose first run does then, if that is not nil, when it
// goes on.
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

// start begins the first run and returns when it has got to the middle.
func (h *interrupted) start(t *testing.T, p *redisProcess, c guardtest.Call) <-chan guardtest.Reply {
	t.Helper()
	t.Cleanup(h.goOn) // also when the test has failed
	done := p.Begin(t, c)
	<-h.begun
	return done
}

// requireReplay asks until the answer is a replay, and that of no other run.
func (p *redisProcess) requireReplay(t *testing.T, c guardtest.Call, body string) {
	t.Helper()
	var got guardtest.Reply
	require.Eventually(t, func() bool {
		got = p.Do(t, c)
		return got.Status == http.StatusOK
	}, guardtest.RedisPatience, 20*time.Millisecond)
	require.True(t, got.Replayed())
	require.Equal(t, body, got.Body)
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
