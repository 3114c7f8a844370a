package idempotency

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// storeTimeout bounds one call of the store. A store that answers later than this is
// as good as gone for a request that somebody is waiting for.
const storeTimeout = 2 * time.Second

// A core is what a guard shares with all guards made from it by With: the store, and
// the work that outlives requests.
type core struct {
	store Store
	scope ScopeFunc

	local  bool // the store is in this process, and its calls return at once
	inline bool // the store's calls end when their context ends; see ContextStore

	bodies    sync.Pool // of *bodyBuffer
	renewers  sync.Pool // of *renewer
	room      waitingRoom
	resolving resolving
	work      work
	unsettled unsettled
	pending   pendingAnswers
	ghosts    pendingAnswers // claims whose reply never came
	abandoned atomic.Int64   // calls that have outlived who made them
}

func newCore(store Store, scope ScopeFunc) *core {
	c := &core{store: store, scope: scope}
	_, c.local = store.(*MemoryStore)
	if s, ok := store.(ContextStore); ok {
		c.inline = s.ObeysContext()
	}
	c.bodies.New = func() any { return new(bodyBuffer) }
	c.work.init()
	c.room.init()
	return c
}

// maxAbandoned bounds the calls in which a store that ignores its context hangs. As long
// as so many have not come back, no other is made: each keeps a goroutine.
const maxAbandoned = 4096

var (
	errStoreTimeout = errors.New("idempotency: store call timed out")
	errStoreStuck   = errors.New("idempotency: the store does not come back from earlier calls")
)

// do makes one store call that returns within the timeout, whatever the store does: a
// store that hangs must not hang the client. A store that is not known to honour its
// context is called in a goroutine, which is abandoned when the time is over and ends
// when the store returns.
func do[T any](ctx context.Context, c *core, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	if c.local {
		return f(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errStoreTimeout)
	defer cancel()
	if c.inline {
		return f(ctx)
	}
	var none T
	if c.abandoned.Load() >= maxAbandoned {
		return none, errStoreStuck
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	var over atomic.Bool // for the one of the two who is first
	go func() {
		v, err := f(ctx)
		done <- result{v, err}
		if !over.CompareAndSwap(false, true) {
			c.abandoned.Add(-1)
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	c.abandoned.Add(1)
	if over.CompareAndSwap(false, true) {
		return none, context.Cause(ctx)
	}
	c.abandoned.Add(-1)
	r := <-done // both at once: the answer counts
	return r.value, r.err
}

// claim claims a key for a client. The end of the client's context does not end the call.
func (c *core) claim(client context.Context, timeout time.Duration, key string, claim Claim) (Record, error) {
	if c.local { // without the context and the closure that do needs
		return c.store.Claim(context.Background(), key, claim)
	}
	return do(context.WithoutCancel(client), c, timeout, func(ctx context.Context) (Record, error) {
		return c.store.Claim(ctx, key, claim)
	})
}

// work counts what must be finished before a shutdown is complete: runs, renewals and
// background recordings. It is a WaitGroup that can be closed, and costs a request two
// atomic additions.
type work struct {
	n atomic.Int64 // pieces of work, and workClosed once new requests are refused

	idle   chan struct{} // closed when there is no work any more after close
	isIdle sync.Once
	// quit is closed when new requests are refused, abort when a shutdown's time is
	// over and the background is to give up.
	quit, abort chan struct{}
	closing     sync.Once
	aborting    sync.Once
}

const workClosed = 1 << 62

func (w *work) init() {
	w.idle = make(chan struct{})
	w.quit = make(chan struct{})
	w.abort = make(chan struct{})
}

// admit begins a request, unless new ones are refused.
func (w *work) admit() bool {
	if w.n.Add(1) >= workClosed {
		w.leave()
		return false
	}
	return true
}

// enter begins a piece of work on behalf of a request that was admitted. It fails only
// when a shutdown has run out of time.
func (w *work) enter() bool {
	w.n.Add(1)
	select {
	case <-w.abort:
		w.leave()
		return false
	default:
		return true
	}
}

func (w *work) leave() {
	if w.n.Add(-1) == workClosed {
		w.isIdle.Do(func() { close(w.idle) })
	}
}

// shutdown refuses new requests, and waits until all work is done or ctx ends.
func (w *work) shutdown(ctx context.Context) error {
	w.closing.Do(func() {
		w.n.Add(workClosed + 1) // one of its own, so that there is an end of the last
		close(w.quit)
		w.leave()
	})
	select {
	case <-w.idle:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-w.idle:
		return nil
	default:
	}
	w.aborting.Do(func() { close(w.abort) })
	return context.Cause(ctx)
}
