package idempotency

import (
	"context"
	"errors"
	"sync"
	"time"
)

var _ Watcher = (*RedisStore)(nil)

// A redisWatch is the registry of those who wait for records of a [RedisStore] to
// settle. All of them share one subscription, which runs only while somebody waits,
// and a little longer, so that a busy store does not subscribe again and again.
type redisWatch struct {
	// listen subscribes, and reports to the registry by confirmed, lost and settled
	// until ctx ends, retire says that it may end, or the server refuses.
	listen func(ctx context.Context) error

	mu        sync.Mutex
	waiting   map[string]map[chan struct{}]struct{} // by name of the record
	sub       *redisSubscription                    // nil when none runs
	idleSince time.Time                             // when the last one stopped waiting
	closed    bool
}

// A redisSubscription is one run of redisWatch.listen.
type redisSubscription struct {
	cancel  context.CancelFunc
	ready   chan struct{} // closed while the server has confirmed the subscription
	isReady bool
	missed  bool          // somebody may have missed something since it last was
	done    chan struct{} // closed when it has ended
	err     error         // why, to be read after done
}

var errRedisClosed = errors.New("idempotency: redis: store is closed")

// redisWatchIdle is how long the subscription outlives the last one who waited.
const redisWatchIdle = time.Minute

const (
	// redisQuiet is how long the subscription may be silent before the server is asked
	// for a sign of life, and then again before the connection is given up: a
	// connection that a firewall has forgotten never fails by itself.
	redisQuiet = 5 * time.Second
	// redisPause is how long to wait before subscribing again, at first and at most.
	redisPause, redisMaxPause = 50 * time.Millisecond, 2 * time.Second
)

// add registers one who waits. It returns when the server has confirmed the
// subscription: from then on nothing is missed, except when the connection is lost,
// and then everybody is woken.
func (w *redisWatch) add(ctx context.Context, name string) (<-chan struct{}, func(), error) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil, nil, errRedisClosed
	}
	if w.sub == nil {
		run, cancel := context.WithCancel(context.Background())
		w.sub = &redisSubscription{
			cancel: cancel, ready: make(chan struct{}), done: make(chan struct{}),
			missed: len(w.waiting) > 0, // by a subscription that failed
		}
		go w.run(run, w.sub) //nolint:contextcheck // it outlives the one who starts it
	}
	wake := make(chan struct{}, 1)
	if w.waiting == nil {
		w.waiting = make(map[string]map[chan struct{}]struct{})
	}
	if w.waiting[name] == nil {
		w.waiting[name] = make(map[chan struct{}]struct{})
	}
	w.waiting[name][wake] = struct{}{}
	sub, ready := w.sub, w.sub.ready
	w.mu.Unlock()

	stop := func() { w.remove(name, wake) }
	select {
	case <-ready:
		return wake, stop, nil
	case <-sub.done:
		stop()
		return nil, nil, sub.err
	case <-ctx.Done():
		stop()
		return nil, nil, ctx.Err()
	}
}

// remove may be called more than once.
func (w *redisWatch) remove(name string, wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting[name], wake)
	if len(w.waiting[name]) == 0 {
		delete(w.waiting, name)
	}
	if len(w.waiting) == 0 {
		w.idleSince = time.Now()
	}
}

func (w *redisWatch) run(ctx context.Context, sub *redisSubscription) {
	err := w.listen(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub == sub {
		w.sub = nil
	}
	if sub.err = err; w.closed {
		sub.err = errRedisClosed
	}
	sub.cancel()
	close(sub.done)
	w.wakeAll()
}

// settled wakes those who wait for the record of that name.
func (w *redisWatch) settled(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wake := range w.waiting[name] {
		wakeUp(wake)
	}
}

// confirmed is called when the server confirms the subscription. Unless that is the
// first time, something may have been said before, so everybody looks again.
func (w *redisWatch) confirmed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub == nil {
		return
	}
	if w.sub.isReady || w.sub.missed {
		w.wakeAll()
	}
	w.sub.missed = false
	if !w.sub.isReady {
		w.sub.isReady = true
		close(w.sub.ready)
	}
}

// lost is called when the connection is: who comes now waits for the next confirmation.
func (w *redisWatch) lost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sub != nil && w.sub.isReady {
		w.sub.isReady, w.sub.missed, w.sub.ready = false, true, make(chan struct{})
	}
}

// retire tells the subscription to end when nobody has waited for a while.
func (w *redisWatch) retire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 || time.Since(w.idleSince) < redisWatchIdle {
		return false
	}
	w.sub = nil // who comes from now on starts another
	return true
}

// close ends the subscription, wakes everybody, and returns when it has ended.
func (w *redisWatch) close() {
	w.mu.Lock()
	w.closed = true
	sub := w.sub
	w.mu.Unlock()
	if sub != nil {
		sub.cancel()
		<-sub.done
	}
}

func (w *redisWatch) wakeAll() {
	for _, waiting := range w.waiting {
		for wake := range waiting {
			wakeUp(wake)
		}
	}
}

// wakeUp leaves a value in a channel of capacity one, unless there is one already.
func wakeUp(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
