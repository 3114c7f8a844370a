package inflight

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Throttle bounds how many calls are made at a time to a server that answers too slowly. A slow answer halves
// the bound, at most once in the time of a slow answer. Each other one raises it by one, so that it doubles in the time
// of an answer. As long as no answer has been slow there is no bound, and a call costs two atomic additions.
//
// So the bound falls to a few if all answers are slow, and soon ends if most are not, as where one server of many
// has stopped. The zero Throttle is ready for use.
type Throttle struct {
	// Fair says that who came first is called first, and not who came last.
	Fair bool
	// Rest bounds the calls to the same server that can wait, or is nil. It is lowered first.
	Rest *Throttle

	inside atomic.Int64
	limit  atomic.Int64 // 0 if there is none
	halved atomic.Int64 // when, in nanoseconds since 1970

	mu      sync.Mutex
	waiting []chan struct{} // in the order in which they came
	queued  atomic.Int64    // their number
}

const (
	// leastAtATime is a small part of the connections of a pool.
	leastAtATime = 2
	// unlimited is where a throttle ends.
	unlimited = 4096
)

// ErrBehind says that a call has not been made.
var ErrBehind = errors.New("idempotency: the store is behind with its answers")

// Enter returns when the call may be made, which ends with Leave, and reports whether it has waited. It fails if
// that takes longer than patience, or gone is closed.
//
// Clients are called in the reverse order: those who came first have waited so long that they may have given up
// by the time of the answer, and then the server would only work in vain.
func (t *Throttle) Enter(gone <-chan struct{}, patience time.Duration) (waited bool, err error) {
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
	case <-gone:
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
	now, limit := time.Now(), t.limit.Load()
	switch {
	case now.Sub(made) >= slow:
		t.lower(now.UnixNano(), slow)
	case limit >= unlimited:
		t.limit.CompareAndSwap(limit, 0)
	case limit > 0:
		t.limit.CompareAndSwap(limit, limit+1)
	}
	t.leave()
}

// lower halves the bound, or the number of calls under way if that is smaller. It reports false if it can do no more.
func (t *Throttle) lower(now int64, slow time.Duration) bool {
	if t.Rest != nil && t.Rest.lower(now, slow) {
		return true
	}
	n, limit := t.inside.Load(), t.limit.Load()
	if limit == leastAtATime {
		return false
	}
	if last := t.halved.Load(); now-last < int64(slow) || !t.halved.CompareAndSwap(last, now) {
		return true
	}
	if limit > 0 {
		n = min(n, limit)
	}
	t.limit.Store(max(leastAtATime, n/2))
	return true
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
		close(t.next())
	}
}

// next takes out who is called next.
func (t *Throttle) next() chan struct{} {
	n := len(t.waiting) - 1
	if t.Fair {
		n = 0
	}
	turn := t.waiting[n]
	t.waiting = append(t.waiting[:n], t.waiting[n+1:]...)
	return turn
}
