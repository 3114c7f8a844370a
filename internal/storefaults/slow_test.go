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
	"example.com/idempotency/internal/guardtest"
)

// A pool has a few connections, each of which makes one call at a time. Like one of a real client, it
// loses a connection whose caller gives up, and a new one costs it as much as a call.
type pool struct {
	free chan struct{}
	away atomic.Bool
}

func (p *pool) call(ctx context.Context, proceed func() error) error {
	const service = 200 * time.Millisecond
	select {
	case p.free <- struct{}{}:
		defer func() { <-p.free }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.away.Load() {
		<-ctx.Done()
	}
	time.Sleep(service)
	if ctx.Err() != nil {
		time.Sleep(service)
		return ctx.Err()
	}
	return proceed()
}

// A store that is slow is fast enough for its clients, and is again after it was away. What the guard
// has to give back meanwhile must not take the connections from those who wait.
func TestSlowStoreRecoversFromAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections := &pool{free: make(chan struct{}, 10)}
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
					case <-time.After(100 * time.Millisecond):
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
			time.Sleep(20 * time.Second)
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
		p.Store.Heal()
		require.NoError(t, p.Guard.Shutdown(t.Context()))
	})
}
