package inflight

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Throttle bounds how many calls are made at a time to a server that answers too slowly. A slow answer lowers
// the bound to a few, and each other one raises it by one, so that it doubles in the time of an answer. As long as
// no answer has been slow there is no bound, and a call costs two atomic additions. The zero Throttle is ready for use.
type Throttle struct {
	inside atomic.Int64
	limit  atomic.Int64 // 0 if there is none

	mu      sync.Mutex
	waiting []chan struct{} // in the order in which they came; the last is called first
	queued  atomic.Int64    // their number
}

const (
	// leastAtATime is a small part of the connections of a pool.
	leastAtATime = 4
	// unlimited is where a throttle ends.
	unlimited = 4096
)

// ErrBehind says that a call has not been made.
var ErrBehind = errors.New("idempotency: the store is behind with its answers")

// Enter returns when the call may be made, which ends with Leave, and reports whether it has waited. It fails if
// that takes longer than patience, or client ends.
//
// Who came last is called first. Those who came first have waited so long that their clients may have given up
// by the time of the answer, and then the server would only work in vain.
func (t *Throttle) Enter(client context.Context, patience time.Duration) (waited bool, err error) {
	n := t.inside.Add(1)
	if limit := t.limit.Load(); limit == 0 || n <= limit {
		return false, nil
	}
	turn := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, turn)
	t.queued.Add(1)
	t.mu.Unlock()
	t.leave()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-turn:
		return true, nil
	case <-timer.C:
	case <-client.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range t.waiting {
		if w == turn {
			t.waiting = append(t.waiting[:i], t.waiting[i+1:]...)
			t.queued.Add(-1)
			return true, ErrBehind
		}
	}
	return true, nil // it was called in this moment
}

// Leave ends a call that was made at a time, and whose answer is slow if it took that long.
func (t *Throttle) Leave(made time.Time, slow time.Duration) {
	switch limit := t.limit.Load(); {
	case time.Since(made) >= slow:
		t.limit.Store(leastAtATime)
	case limit >= unlimited:
		t.limit.CompareAndSwap(limit, 0)
	case limit > 0:
		t.limit.CompareAndSwap(limit, limit+1)
	}
	t.leave()
}

// leave makes room, and calls those for whom there is some.
func (t *Throttle) leave() {
	t.inside.Add(-1)
	if t.queued.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for limit := t.limit.Load(); len(t.waiting) > 0 && (limit == 0 || t.inside.Load() < limit); {
		t.inside.Add(1)
		t.queued.Add(-1)
		last := len(t.waiting) - 1
		close(t.waiting[last])
		t.waiting = t.waiting[:last]
	}
}
