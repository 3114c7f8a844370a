package storefaults

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
)

// A pool has a few connections, each of which makes one call at a time. Like one of a real client, it
// loses a connection whose caller gives up, and a new one costs it as much as a call, or what dial says.
type pool struct {
	free    chan struct{}
	service time.Duration
	dial    time.Duration
	slower  atomic.Int64 // what a call takes beside, once the pool is in use
	away    atomic.Bool
}

func (p *pool) call(ctx context.Context, proceed func() error) error {
	select {
	case p.free <- struct{}{}:
		defer func() { <-p.free }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.away.Load() {
		<-ctx.Done()
	}
	time.Sleep(p.service + time.Duration(p.slower.Load())) // of the bubble
	if ctx.Err() != nil {
		time.Sleep(max(p.service, p.dial)) // of the bubble
		return ctx.Err()
	}
	return proceed()
}

// rest ends the process, and waits for calls that it has given up.
func (p *pool) rest(t *testing.T, of *guardtest.Process) {
	t.Helper()
	of.Store.Heal()
	require.NoError(t, of.Guard.Shutdown(t.Context()))
	for range cap(p.free) {
		p.free <- struct{}{}
	}
}

// A store that is slow is fast enough for its clients, and is again after it was away. What the guard
// has to give back meanwhile must not take the connections from those who wait.
func TestSlowStoreRecoversFromAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 10), service: 200 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.Fail(connections.call)
		stop := make(chan struct{})
		var done atomic.Int64
		var clients sync.WaitGroup
		for c := range 20 {
			clients.Go(func() {
				for n := 0; ; {
					select {
					case <-stop:
						return
					case <-time.After(200 * time.Millisecond):
					}
					if p.Attempt(t, guardtest.Call{Key: fmt.Sprint(c, "-", n)}).Status == http.StatusOK {
						n++
						done.Add(1)
					}
				}
			})
		}
		inAWhile := func() int64 {
			before := done.Load()
			time.Sleep(10 * time.Second)
			return done.Load() - before
		}
		usual := inAWhile()
		connections.away.Store(true)
		time.Sleep(time.Minute)
		connections.away.Store(false)
		time.Sleep(10 * time.Second)
		after := inAWhile()
		close(stop)
		clients.Wait()
		require.Greater(t, after, usual*3/4)
		connections.rest(t, p)
	})
}

// Clients that hang up and ask again are more than a slow store can answer. The runs in flight keep their
// claims all the same, and work is done.
func TestSlowStoreServesTheRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 4), service: 100 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(10*time.Second, "done"), idempotency.WithLease(6*time.Second))
		p.Store.Fail(connections.call)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var done atomic.Int64
		guardtest.Together(40, func(c int) {
			for n := 0; ctx.Err() == nil; {
				patient, hangUp := context.WithTimeout(t.Context(), time.Second)
				answer := make(chan int, 1)
				go func() {
					got, _ := p.Try(patient, guardtest.Call{Key: fmt.Sprint(c, "-", n)})
					answer <- got.Status
				}()
				select {
				case status := <-answer:
					if status == http.StatusOK {
						n++
						done.Add(1)
					}
				case <-patient.Done():
				}
				hangUp()
			}
		})
		require.Less(t, p.Events.Count(event.LeaseLost), 20, "0 to 8 with a throttle, and 36 to 39 without")
		require.Greater(t, done.Load(), int64(100))
		connections.rest(t, p)
	})
}

// A store becomes slow while many runs last. Their renewals do not wait for each other, and all keep their claims.
func TestSlowStoreRenewsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 200), service: 10 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(2*time.Minute, "done"), idempotency.WithLease(9*time.Second))
		p.Store.Fail(connections.call)
		var clients sync.WaitGroup
		for n := range 100 {
			clients.Go(func() {
				time.Sleep(time.Duration(n) * 30 * time.Millisecond)
				p.Attempt(t, guardtest.Call{Key: fmt.Sprint(n)})
			})
		}
		time.Sleep(10 * time.Second)
		connections.slower.Store(int64(1500 * time.Millisecond))
		clients.Wait()
		require.Zero(t, p.Events.Count(event.LeaseLost))
		connections.rest(t, p)
	})
}

// A rush of clients that hang up leaves more answers to record than a store far away can take before they are
// given up. When the rush is over, they are recorded, and whoever comes then is served.
func TestSlowStoreRecoversFromARush(t *testing.T) {
	tests := []struct {
		connections          int
		service, dial, lease time.Duration
	}{
		{8, 450 * time.Millisecond, 1500 * time.Millisecond, 30 * time.Second},
		{4, 450 * time.Millisecond, 2 * time.Second, 9 * time.Second},
		{4, 600 * time.Millisecond, 1800 * time.Millisecond, 9 * time.Second},
	}
	for _, tt := range tests {
		guardtest.Bubble(t, fmt.Sprint(tt), func(t *testing.T) {
			connections := &pool{free: make(chan struct{}, tt.connections), service: tt.service, dial: tt.dial}
			p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Idempotency-Key") == "long" {
					time.Sleep(35 * time.Second)
				}
				w.WriteHeader(http.StatusOK)
			}), idempotency.WithLease(tt.lease))
			p.Store.Fail(connections.call)
			long := p.Start(t, guardtest.Call{Key: "long"})
			var clients sync.WaitGroup
			for c := range 40 {
				for n := range 25 {
					clients.Go(func() {
						time.Sleep(time.Duration(n) * 400 * time.Millisecond)
						_, _ = p.Try(t.Context(), guardtest.Call{Key: fmt.Sprint(c, "-", n/3)})
					})
				}
			}
			time.Sleep(40 * time.Second)
			clients.Wait()
			require.Equal(t, http.StatusOK, (<-long).Status)
			if tt.lease > 10*time.Second { // longer than the rush
				require.Zero(t, p.Events.Count(event.LeaseLost))
			}
			require.Zero(t, p.Guard.Stats().Pending)
			start := time.Now()
			require.Equal(t, http.StatusOK, p.Attempt(t, guardtest.Call{Key: "next"}).Status)
			require.Less(t, time.Since(start), 2*time.Second)
			connections.rest(t, p)
		})
	}
}

// Servers are three, each of which has a third of the keys. One of them may hang.
type servers struct {
	store.Store
	hangs atomic.Bool
	slow  time.Duration // how long one of them takes, if not as long as the others
}

func (s *servers) Claim(ctx context.Context, name string, c store.Claim) (store.Record, error) {
	if err := s.reach(name); err != nil {
		return store.Record{}, err
	}
	return s.Store.Claim(ctx, name, c)
}

func (s *servers) Release(ctx context.Context, name string, o store.Owner, r store.Release) error {
	if err := s.reach(name); err != nil {
		return err
	}
	return s.Store.Release(ctx, name, o, r)
}

func (s *servers) Renew(ctx context.Context, name string, o store.Owner) error {
	if err := s.reach(name); err != nil {
		return err
	}
	return s.Store.Renew(ctx, name, o)
}

// reach takes longer than anybody waits for a server that hangs.
func (s *servers) reach(name string) error {
	if s.hangs.Load() && name[len(name)-1]%3 == 0 {
		time.Sleep(2500 * time.Millisecond) // of the bubble
		return guardtest.ErrDown
	}
	if s.slow > 0 && name[len(name)-1]%3 == 0 {
		time.Sleep(s.slow) // of the bubble
	}
	time.Sleep(10 * time.Millisecond) // of the bubble
	return nil
}

// One server of several hangs. The keys of the others are claimed as fast as ever.
func TestHangingServerDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := &servers{Store: idempotency.NewMemoryStore()}
		servers.hangs.Store(true)
		p := guardtest.NewProcess(t, servers, guardtest.Answering(0, "done"))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var done atomic.Int64
		var clients sync.WaitGroup
		for n := 0; ctx.Err() == nil; n++ { // a hundred a second, whoever else waits
			clients.Go(func() {
				if got := p.Attempt(t, guardtest.Call{Key: fmt.Sprint(n)}); got.Status == http.StatusOK {
					done.Add(1)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		clients.Wait()
		servers.hangs.Store(false)
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		time.Sleep(time.Minute) // until the last call has returned that was given up
		require.Greater(t, done.Load(), int64(2000), "of 2080")
	})
}

// One server of several hangs, and many runs renew their claims there, again and again. The runs of the others keep
// theirs.
func TestHangingServerDoesNotStopTheRenewalsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := &servers{Store: idempotency.NewMemoryStore()}
		p := guardtest.NewProcess(t, servers, guardtest.Answering(2*time.Minute, "done"), idempotency.WithLease(9*time.Second))
		var clients sync.WaitGroup
		for n := range 300 {
			clients.Go(func() { p.Attempt(t, guardtest.Call{Key: fmt.Sprint(n)}) })
		}
		time.Sleep(time.Minute)
		servers.hangs.Store(true)
		time.Sleep(time.Minute)
		lost := 0
		for _, e := range p.Events.All() {
			if e.Kind == event.LeaseLost && e.Record[len(e.Record)-1]%3 != 0 {
				lost++
			}
		}
		servers.hangs.Store(false)
		clients.Wait()
		require.Zero(t, lost)
		require.NoError(t, p.Guard.Shutdown(t.Context()))
		time.Sleep(time.Minute)
	})
}

// A run whose claim was lost needs several calls to record its answer. Each of them has its time, however slow
// the store is.
func TestSlowStoreTakesALostClaimBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 100), service: 1200 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(10*time.Second, "done"), idempotency.WithLease(6*time.Second))
		first := p.Start(t, guardtest.Call{Key: "k"})
		p.Store.Fail(connections.call)
		p.Store.Replace(idempotency.NewMemoryStore())
		<-first
		time.Sleep(time.Minute)
		require.Zero(t, p.Guard.Stats().Pending)
		p.Store.Heal()
		require.True(t, p.Do(t, guardtest.Call{Key: "k"}).Replayed())
		connections.rest(t, p)
	})
}

// A store that always answers late, but in time, is far away and not behind. All that is asked of it is answered.
func TestSlowStoreIsNotBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 200), service: 1500 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(time.Minute, "done"), idempotency.WithLease(9*time.Second))
		p.Store.Fail(connections.call)
		var done atomic.Int64
		guardtest.Together(60, func(c int) {
			for n := range 3 {
				if p.Attempt(t, guardtest.Call{Key: fmt.Sprint(c, "-", n)}).Status == http.StatusOK {
					done.Add(1)
				}
			}
		})
		require.EqualValues(t, 180, done.Load())
		require.Zero(t, p.Events.Count(event.LeaseLost))
		connections.rest(t, p)
	})
}

// A store that has fallen behind is asked for a few claims at a time. The others are refused, and there is nothing
// to give back.
func TestSlowStoreIsAskedForAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 100), service: 100 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.Fail(connections.call)
		p.Attempt(t, guardtest.Call{Key: "first"})
		connections.service = 1500 * time.Millisecond
		var refused atomic.Int64
		guardtest.Together(60, func(c int) {
			time.Sleep(time.Duration(c) * 100 * time.Millisecond)
			if p.Attempt(t, guardtest.Call{Key: fmt.Sprint(c)}).Problem.Code == problem.StoreUnavailable {
				refused.Add(1)
			}
		})
		require.Greater(t, refused.Load(), int64(20))
		require.Zero(t, p.Guard.Stats().GivingBack)
		connections.rest(t, p)
	})
}

// One slow server of several, and many clients who ask for its keys. The runs of the others keep theirs.
func TestSlowServerDoesNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := &servers{Store: idempotency.NewMemoryStore(), slow: 1200 * time.Millisecond}
		p := guardtest.NewProcess(t, servers, guardtest.Answering(time.Minute, "done"), idempotency.WithLease(6*time.Second))
		guardtest.Together(300, func(n int) {
			time.Sleep(time.Duration(n) * 10 * time.Millisecond)
			require.Equal(t, http.StatusOK, p.Attempt(t, guardtest.Call{Key: fmt.Sprint(n)}).Status)
		})
		require.Zero(t, p.Events.Count(event.LeaseLost))
		require.NoError(t, p.Guard.Shutdown(t.Context()))
	})
}

// Each answer of a slow store counts, also where requests run without protection if it has none.
func TestSlowStoreProtectsWhereItFailsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 100), service: 100 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"), idempotency.WithFailOpen(true))
		p.Store.Fail(connections.call)
		p.Attempt(t, guardtest.Call{Key: "first"})
		connections.service = 1500 * time.Millisecond
		guardtest.Together(20, func(c int) {
			for n := range 5 {
				p.Attempt(t, guardtest.Call{Key: fmt.Sprint(c, "-", n)})
			}
		})
		require.Zero(t, p.Events.Count(event.FailOpen))
		connections.rest(t, p)
	})
}
