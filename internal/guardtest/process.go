package guardtest

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// LeaseTime is the lease of each [Process].
const LeaseTime = 30 * time.Second

// A Process is a guard with its own handler on a store that it shares with others. A test
// can cut it off from that store.
type Process struct {
	*Server
	Store  *FaultStore
	Guard  *idempotency.Guard
	Events *Events
}

// NewProcess returns a process that shares a store with others.
func NewProcess(t *testing.T, shared idempotency.Store, h http.Handler, opts ...idempotency.Option) *Process {
	t.Helper()
	p := &Process{Store: &FaultStore{Behind: shared}, Events: &Events{}}
	return p.start(t, p.Store, h, opts)
}

// start makes the guard of the process on its store, or on one in front of that. At the end of the test the store heals:
// or the guard's shutdown would try for a day of the bubble to record what it could not.
func (p *Process) start(t *testing.T, store idempotency.Store, h http.Handler, opts []idempotency.Option) *Process {
	t.Helper()
	p.Guard = NewGuard(t, store, append([]idempotency.Option{idempotency.WithLease(LeaseTime), idempotency.WithObserver(p.Events.Observe)}, opts...)...)
	t.Cleanup(p.Store.Heal)
	p.Server = ServeRecorder(t, p.Guard.Handler(h))
	return p
}

// RequireQuiet checks that no timer is left to call the store.
func (p *Process) RequireQuiet(t *testing.T) {
	t.Helper()
	synctest.Wait()
	before := p.Store.Total()
	time.Sleep(24 * time.Hour)
	require.Equal(t, before, p.Store.Total(), "the store is still being called")
}

// Shortly returns a context that gives a shutdown a second.
func Shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Waiters starts n duplicates of a request and returns when all are waiting.
func (p *Process) Waiters(t *testing.T, n int, c Call) <-chan Reply {
	replies := make(chan Reply, n)
	for range n {
		go func() { replies <- p.Attempt(t, c) }()
	}
	synctest.Wait()
	return replies
}

// NewWatchingProcess returns a process whose store wakes its waiters, and that store.
func NewWatchingProcess(t *testing.T, shared idempotency.Store, h http.Handler, opts ...idempotency.Option) (*Process, *WatchedStore) {
	t.Helper()
	p := &Process{Store: &FaultStore{Behind: shared}, Events: &Events{}}
	store := &WatchedStore{FaultStore: p.Store}
	return p.start(t, store, h, opts), store
}
