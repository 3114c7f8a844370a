// Package inflight counts what goes on, in the background too, bounds it, and lets a shutdown wait for it.
package inflight

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Work counts what must be finished before a shutdown is complete: runs, renewals and
// background recordings. It is a WaitGroup that can be closed, and costs a request two
// atomic additions.
type Work struct {
	n atomic.Int64 // pieces of work, plus closed once new requests are refused

	idle   chan struct{} // closed when the last piece of work ends after the close
	isIdle sync.Once
	// Quit is closed when new requests are refused. abort is closed when a shutdown's
	// time is over and the background has to give up.
	Quit, abort chan struct{}
	closing     sync.Once
	aborting    sync.Once
	ClosedAt    time.Time // when Quit was closed
}

const closed = 1 << 62

// Init makes w ready for use.
func (w *Work) Init() {
	w.idle = make(chan struct{})
	w.Quit = make(chan struct{})
	w.abort = make(chan struct{})
}

// Admit begins a request, unless new ones are refused.
func (w *Work) Admit() bool {
	if w.n.Add(1) >= closed {
		w.Leave()
		return false
	}
	return true
}

// Enter begins a piece of work on behalf of a request that was admitted. It fails only
// when a shutdown has run out of time.
func (w *Work) Enter() bool {
	w.n.Add(1)
	select {
	case <-w.abort:
		w.Leave()
		return false
	default:
		return true
	}
}

// Leave ends a piece of work.
func (w *Work) Leave() {
	if w.n.Add(-1) == closed {
		w.isIdle.Do(func() { close(w.idle) })
	}
}

// Ended is closed when a shutdown has run out of time.
func (w *Work) Ended() <-chan struct{} { return w.abort }

// Closing reports whether new requests are refused.
func (w *Work) Closing() bool { return w.n.Load() >= closed }

// Pause sleeps in the background. It reports false when a shutdown has run out of time.
func (w *Work) Pause(d time.Duration) bool { return Sleep(d, w.abort) }

// Sleep sleeps, and reports false if end is closed before d is over.
func Sleep(d time.Duration, end <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-end:
		return false
	}
}

// Backoff is the pause after the nth failure in a row: short at first, because most
// failures are a lost connection, and never more than two seconds.
func Backoff(n int) time.Duration {
	return min(20*time.Millisecond<<min(n-1, 10), 2*time.Second)
}

// Recovered makes an error of a panic. It is to be deferred.
func Recovered(who string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("idempotency: %s panicked: %v\n%s", who, p, debug.Stack())
	}
}
