package idempotency_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/problem"
)

// A watchedStore is a faultStore that can wake waiters, and counts who watches.
type watchedStore struct {
	*faultStore
	watches, watching atomic.Int64
	watchFault        atomic.Pointer[error]
	beforeWatch       func() // called first, if there is one
}

func (s *watchedStore) Watch(ctx context.Context, key string) (<-chan struct{}, func(), error) {
	s.watches.Add(1)
	if s.beforeWatch != nil {
		s.beforeWatch()
	}
	if err := s.watchFault.Load(); err != nil {
		return nil, nil, *err
	}
	settled, stop, err := s.behind.(idempotency.Watcher).Watch(ctx, key)
	s.watching.Add(1)
	return settled, func() { s.watching.Add(-1); stop() }, err
}

// newWatchingProcess is a process whose store wakes its waiters.
func newWatchingProcess(t *testing.T, shared idempotency.Store, h http.Handler, opts ...idempotency.Option) (*process, *watchedStore) {
	t.Helper()
	p := newProcess(t, shared, h, opts...)
	store := &watchedStore{faultStore: p.store}
	opts = append([]idempotency.Option{idempotency.WithLease(leaseTime), idempotency.WithObserver(p.events.observe)}, opts...)
	p.guard = newGuard(t, store, opts...)
	p.server = serveRecorder(t, p.guard.Handler(h))
	return p, store
}

// waiters starts n duplicates of a request and returns when all are waiting.
func (p *process) waiters(t *testing.T, n int, c call) <-chan reply {
	replies := make(chan reply, n)
	for range n {
		go func() { replies <- p.attempt(t, c) }()
	}
	synctest.Wait()
	return replies
}

// A thousand duplicates cost the store one claim each, as any request does, and a handful
// of calls for all of them together, however long they wait. They cost the process the
// goroutines that they come with.
func TestWaitersShareOneWait(t *testing.T) {
	for name, watch := range map[string]bool{"woken": true, "asking": false} {
		t.Run(name, func(t *testing.T) { // not parallel: it counts goroutines
			synctest.Test(t, func(t *testing.T) {
				const n = 1000
				h := answering(20*time.Second, "done")
				opt := idempotency.WithWait(time.Minute)
				p := newProcess(t, idempotency.NewMemoryStore(), h, opt)
				if watch {
					p, _ = newWatchingProcess(t, idempotency.NewMemoryStore(), h, opt)
				}
				owner := p.start(t, call{key: "k"})
				before := runtime.NumGoroutine()
				replies := p.waiters(t, n, call{key: "k"})
				require.LessOrEqual(t, runtime.NumGoroutine()-before, n+2)
				require.Equal(t, 1+n+boolInt(watch), p.store.count("claim"), "the leader's claim after watching says that it waits")

				start := time.Now()
				require.Equal(t, "done", (<-owner).body)
				for range n {
					got := <-replies
					require.True(t, got.replayed())
					require.Equal(t, "done", got.body)
				}
				late := time.Second // the longest pause of one who asks
				if watch {
					late = 0
				}
				require.LessOrEqual(t, time.Since(start)-20*time.Second, late)
				require.Less(t, p.store.count("claim"), 1+n+30)
				require.EqualValues(t, 1, h.runs.Load())
				p.requireQuiet(t)
			})
		})
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The run ends after a request has found it in flight and before that request watches for
// its end, so that nobody is woken.
func TestEndBeforeTheWatchIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		h := &counter{handler: func(http.ResponseWriter, *http.Request, int64) { <-leave }}
		p, store := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		owner := p.start(t, call{key: "k"})
		store.beforeWatch = func() {
			close(leave)
			synctest.Wait()
		}
		start := time.Now()
		require.True(t, p.do(t, call{key: "k"}).replayed())
		require.Zero(t, time.Since(start))
		<-owner
	})
}

// The leader's time is up before that of the others: one of them leads on, and is woken
// as the leader would have been.
func TestAnotherLeadsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(20*time.Second, "done")
		p, store := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(5*time.Second))
		patient := serveRecorder(t, p.guard.With(idempotency.WithWait(time.Minute)).Handler(h))
		start := time.Now()
		owner := p.start(t, call{key: "k"})
		leader := p.start(t, call{key: "k"})
		followers := make(chan reply, 3)
		for range cap(followers) {
			go func() { followers <- patient.attempt(t, call{key: "k"}) }()
		}
		requireProblem(t, <-leader, http.StatusConflict, problem.InFlight)
		require.Equal(t, 5*time.Second, time.Since(start))
		synctest.Wait()
		require.EqualValues(t, 1, store.watching.Load())
		require.EqualValues(t, 2, store.watches.Load())

		<-owner
		for range cap(followers) {
			require.Equal(t, "done", (<-followers).body)
		}
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Zero(t, store.watching.Load(), "a watch is left behind")
	})
}

// The owner dies. Of those who wait for it one takes the record over, and the others wait
// on, for that one.
func TestLeaderTakesOverAndOthersWaitOn(t *testing.T) {
	t.Parallel()
	for name, watch := range map[string]bool{"woken": true, "asking": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shared := idempotency.NewMemoryStore()
				leave := make(chan struct{})
				dead := newProcess(t, shared, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
				owner := dead.start(t, call{key: "k"})
				dead.store.fail(refuse)

				h := &counter{handler: func(w http.ResponseWriter, r *http.Request, _ int64) {
					op, _ := idempotency.FromContext(r.Context())
					time.Sleep(time.Minute)
					_, _ = io.WriteString(w, string(rune('0'+op.Attempt())))
				}}
				opt := idempotency.WithWait(5 * time.Minute)
				p := newProcess(t, shared, h, opt)
				if watch {
					p, _ = newWatchingProcess(t, shared, h, opt)
				}
				start := time.Now()
				replies := p.waiters(t, 10, call{key: "k"})
				replayed := 0
				for range 10 {
					got := <-replies
					require.Equal(t, "2", got.body)
					if got.replayed() {
						replayed++
					}
				}
				require.Equal(t, 9, replayed)
				require.EqualValues(t, 1, h.runs.Load())
				require.LessOrEqual(t, time.Since(start), leaseTime+time.Minute+time.Second)
				close(leave)
				<-owner
				_ = dead.guard.Shutdown(shortly(t))
			})
		})
	}
}

// The run that is waited for ends without an answer: one of the waiting runs.
func TestReleaseLetsOneOfTheWaitingRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, run int64) {
			time.Sleep(time.Second)
			if run < 3 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}}
		p, _ := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		start := time.Now()
		replies := p.waiters(t, 10, call{key: "k"})
		statuses := map[int]int{}
		for range 10 {
			statuses[(<-replies).status]++
		}
		require.Equal(t, map[int]int{http.StatusTooManyRequests: 2, http.StatusOK: 8}, statuses)
		require.EqualValues(t, 3, h.runs.Load())
		require.Equal(t, 3*time.Second, time.Since(start))
	})
}

func TestHoldEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &counter{handler: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			time.Sleep(time.Second)
			w.WriteHeader(http.StatusBadGateway)
		}}
		p, _ := newWatchingProcess(t, idempotency.NewMemoryStore(), h,
			idempotency.WithWait(time.Minute), idempotency.WithRecovery(idempotency.Hold))
		owner := p.start(t, call{key: "k"})
		replies := p.waiters(t, 5, call{key: "k"})
		require.Equal(t, http.StatusBadGateway, (<-owner).status)
		for range 5 {
			requireProblem(t, <-replies, http.StatusConflict, problem.OutcomeUnknown)
		}
	})
}

func TestClientGoneStopsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(20*time.Second, "done")
		p, store := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		owner := p.start(t, call{key: "k"})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan reply, 2)
		for range cap(gone) { // one of them leads
			go func() {
				got, _ := p.try(ctx, call{key: "k"})
				gone <- got
			}()
		}
		synctest.Wait()
		stays := p.waiters(t, 1, call{key: "k"})
		start := time.Now()
		cancel()
		for range cap(gone) {
			requireProblem(t, <-gone, http.StatusConflict, problem.InFlight)
		}
		require.Zero(t, time.Since(start))
		require.Equal(t, "done", (<-owner).body)
		require.Equal(t, "done", (<-stays).body)
		require.Equal(t, 20*time.Second, time.Since(start))
		require.Zero(t, store.watching.Load())
		require.EqualValues(t, 1, h.runs.Load())
	})
}

// The store goes away while requests wait: they wait on, and a watch that cannot be had
// is replaced by asking.
func TestWaitSurvivesTheStore(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"refused": refuse, "reply lost": loseReply, "hanging": hang} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shared := idempotency.NewMemoryStore()
				h := answering(40*time.Second, "done")
				owner := newProcess(t, shared, h)
				p, store := newWatchingProcess(t, shared, h, idempotency.WithWait(2*time.Minute))
				err := error(errDown)
				store.watchFault.Store(&err)
				done := owner.start(t, call{key: "k"})
				replies := p.waiters(t, 5, call{key: "k"})
				p.store.on("claim", always(f))
				time.Sleep(30 * time.Second)
				p.store.heal()
				start := time.Now()
				require.Equal(t, "done", (<-done).body)
				for range 5 {
					require.Equal(t, "done", (<-replies).body)
				}
				require.LessOrEqual(t, time.Since(start), 14*time.Second)
				require.EqualValues(t, 1, h.runs.Load())
			})
		})
	}
}

// What cannot be read will not become readable by waiting.
func TestWaitEndsWithTheStoresAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(20*time.Second, "done")
		shared := idempotency.NewMemoryStore()
		owner := newProcess(t, shared, h)
		p := newProcess(t, shared, h, idempotency.WithWait(time.Minute))
		done := owner.start(t, call{key: "k"})
		replies := p.waiters(t, 3, call{key: "k"})
		start := time.Now()
		p.store.on("claim", always(failWith(idempotency.ErrCorrupt)))
		for range 3 {
			requireProblem(t, <-replies, http.StatusInternalServerError, problem.AnswerUnreadable)
		}
		require.LessOrEqual(t, time.Since(start), time.Second)
		<-done
	})
}

// The record that is waited for is forgotten, and the key used for another payload. That
// is not what was waited for.
func TestWaitEndsWhenTheKeyIsUsedForAnotherPayload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := answering(20*time.Second, "done")
		p := newProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute))
		owner := p.start(t, call{key: "k"})
		replies := p.waiters(t, 3, call{key: "k"})
		p.store.replace(idempotency.NewMemoryStore())
		other := p.start(t, call{key: "k", body: "other"})
		start := time.Now()
		for range 3 {
			requireProblem(t, <-replies, http.StatusConflict, problem.KeyReused)
		}
		require.LessOrEqual(t, time.Since(start), time.Second)
		require.Equal(t, "done", (<-other).body)
		requireProblem(t, <-owner, http.StatusConflict, problem.KeyReused)
	})
}
