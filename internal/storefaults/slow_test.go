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
)

// A pool has a few connections, each of which makes one call at a time. Like one of a real client, it
// loses a connection whose caller gives up, and a new one costs it as much as a call.
type pool struct {
	free    chan struct{}
	service time.Duration
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
	time.Sleep(p.service)
	if ctx.Err() != nil {
		time.Sleep(p.service)
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
	t.Parallel()
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 4), service: 100 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(10*time.Second, "done"), idempotency.WithLease(6*time.Second))
		p.Store.Fail(connections.call)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var done atomic.Int64
		var clients sync.WaitGroup
		for c := range 40 {
			clients.Go(func() {
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
		}
		clients.Wait()
		require.Less(t, p.Events.Count(event.LeaseLost), 6, "of 39 without a throttle")
		require.Greater(t, done.Load(), int64(100))
		connections.rest(t, p)
	})
}

// A store that always answers late is asked for a few claims at a time. The others are refused, and there is
// nothing to give back.
func TestSlowStoreIsAskedForAFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 100), service: 1500 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"))
		p.Store.Fail(connections.call)
		p.Attempt(t, guardtest.Call{Key: "first"})
		var refused atomic.Int64
		var clients sync.WaitGroup
		for c := range 20 {
			clients.Go(func() {
				if p.Attempt(t, guardtest.Call{Key: fmt.Sprint(c)}).Problem.Code == problem.StoreUnavailable {
					refused.Add(1)
				}
			})
		}
		clients.Wait()
		require.EqualValues(t, 16, refused.Load())
		require.Zero(t, p.Guard.Stats().GivingBack)
		connections.rest(t, p)
	})
}

// Each answer of a slow store counts, also where requests run without protection if it has none.
func TestSlowStoreProtectsWhereItFailsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 100), service: 1500 * time.Millisecond}
		p := guardtest.NewProcess(t, idempotency.NewMemoryStore(), guardtest.Answering(0, "done"), idempotency.WithFailOpen(true))
		p.Store.Fail(connections.call)
		var clients sync.WaitGroup
		for c := range 20 {
			clients.Go(func() {
				for n := range 5 {
					p.Attempt(t, guardtest.Call{Key: fmt.Sprint(c, "-", n)})
				}
			})
		}
		clients.Wait()
		require.Zero(t, p.Events.Count(event.FailOpen))
		connections.rest(t, p)
	})
}
