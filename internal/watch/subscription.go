package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/idempotency/internal/giveup"
)

// ErrClosed is returned for a watch of a [Subscription] that is closed.
var ErrClosed = errors.New("store is closed")

// idle is how long a listener outlives the last one who waited.
const idle = time.Minute

// A Subscription serves all who wait for the records of a store. Its listener runs while
// somebody waits, and a little longer, so that a busy store does not subscribe again and
// again.
type Subscription struct {
	listen func(context.Context) error

	mu        sync.Mutex
	waiting   Registry
	run       *run      // nil when no listener runs
	idleSince time.Time // when the last one stopped waiting
	closed    bool
}

// A run is one run of the listener.
type run struct {
	cancel  context.CancelFunc
	ready   chan struct{} // closed while the server has confirmed the subscription
	isReady bool
	missed  bool          // something may have been announced since isReady was last true
	done    chan struct{} // closed when the run has ended
	err     error         // why it has ended, to be read after done
}

// NewSubscription returns a subscription with that listener. The listener subscribes and
// reports what it hears with [Subscription.Confirmed], [Subscription.Lost] and
// [Subscription.Wake]. It returns when its context ends, when [Subscription.Retire]
// returns true, or when the server refuses.
func NewSubscription(listen func(context.Context) error) *Subscription {
	return &Subscription{listen: listen}
}

// Watch adds one who waits for the key. It returns when the server has confirmed the
// subscription. From then on nothing is missed: when the connection is lost, all who wait
// are woken as soon as there is another. stop may be called more than once.
func (s *Subscription) Watch(ctx context.Context, key string) (wake <-chan struct{}, stop func(), err error) {
	mine, r, ready := s.join(key)
	if r == nil {
		return nil, nil, ErrClosed
	}
	stop = func() { s.remove(key, mine) }
	select {
	case <-ready:
		return mine, stop, nil
	case <-r.done:
		stop()
		return nil, nil, r.err
	case <-ctx.Done():
		stop()
		return nil, nil, ctx.Err()
	}
}

// join adds one who waits for the key of a listener, and returns what is closed when that has been
// confirmed. The run is nil when the subscription is closed.
func (s *Subscription) join(key string) (mine chan struct{}, r *run, ready <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, nil
	}
	if s.run == nil {
		s.start()
	}
	return s.waiting.Add(key), s.run, s.run.ready
}

// start starts a listener. It outlives the one who starts it.
func (s *Subscription) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{
		cancel: cancel, ready: make(chan struct{}), done: make(chan struct{}),
		missed: s.waiting.Len() > 0, // while no listener ran
	}
	s.run = r
	go func() {
		err := s.listen(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.run == r {
			s.run = nil
		}
		if r.err = err; s.closed {
			r.err = ErrClosed
		}
		r.cancel()
		close(r.done)
		s.waiting.WakeAll()
	}()
}

func (s *Subscription) remove(key string, wake chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Remove(key, wake)
	if s.waiting.Len() == 0 {
		s.idleSince = time.Now()
	}
}

// Wake wakes those who wait for the key.
func (s *Subscription) Wake(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Wake(key)
}

// Confirmed says that the server has confirmed the subscription. Unless that is the first
// time, something may have been announced before, so everybody is woken.
func (s *Subscription) Confirmed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return
	}
	if s.run.isReady || s.run.missed {
		s.waiting.WakeAll()
	}
	s.run.missed = false
	if !s.run.isReady {
		s.run.isReady = true
		close(s.run.ready)
	}
}

// The first and the longest pause before a listener subscribes again.
const firstPause, maxPause = 50 * time.Millisecond, 2 * time.Second

// Relisten is a listener that receives on one connection after another, with pauses, until receive
// returns nil or ctx ends. receive calls heard when the server has confirmed the subscription. ends
// returns the error with which the listener ends because of an error of receive, or nil; it is told
// whether any subscription was ever confirmed.
func (s *Subscription) Relisten(
	ctx context.Context, receive func(ctx context.Context, heard func()) error, ends func(err error, heard bool) error,
) error {
	pause, ever := firstPause, false
	heard := func() {
		pause, ever = firstPause, true
		s.Confirmed()
	}
	for {
		err := giveup.Safely(func() error { return receive(ctx, heard) })
		if err == nil || ctx.Err() != nil {
			return err
		}
		if end := ends(err, ever); end != nil {
			return end
		}
		s.Lost()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		}
	}
}

// Lost says that the connection is lost. New watches wait for the next confirmation.
func (s *Subscription) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run != nil && s.run.isReady {
		s.run.isReady, s.run.missed, s.run.ready = false, true, make(chan struct{})
	}
}

// Retire reports whether nobody has waited for a while. If so, the listener must return:
// the next watch starts another.
func (s *Subscription) Retire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting.Len() > 0 || time.Since(s.idleSince) < idle {
		return false
	}
	s.run = nil
	return true
}

// Close ends the listener, wakes everybody, and returns when the listener has ended. It
// may be called more than once.
func (s *Subscription) Close() {
	s.mu.Lock()
	s.closed = true
	r := s.run
	s.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
}
