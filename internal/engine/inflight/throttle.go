package inflight

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Throttle bounds how many calls are made at a time to a server that is behind with its answers. An answer is slow
// if it takes longer than its caller says, and twice as long as the quickest one of late: a server far away is not
// behind. If more answers are slow than not, the bound is halved, at most once in the time of a slow answer. Each
// other one raises it by one, so that it doubles in the time of an answer. As long as answers are not slow there is no
// bound, and a call costs three atomic additions.
//
// A call without an answer says little: one server of many may have stopped. It counts only while no other is
// answered in time. The zero Throttle is ready for use.
type Throttle struct {
	// Fair says that who came first is called first, and not who came last.
	Fair bool
	// Rest bounds the calls to the same server that can wait, or is nil. It is lowered first.
	Rest *Throttle

	inside atomic.Int64
	limit  atomic.Int64 // 0 if there is none
	// since is when the throttle has begun to count answers, in nanoseconds since 1970.
	since       atomic.Int64
	quick, slow atomic.Int64 // answers since then
	// best and before are how long the quickest answers took, of this minute and of the one before, or 0.
	minute, best, before atomic.Int64

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
// Unless the throttle is fair, who came last is called first: those who came first have waited so long that their
// clients may have given up by the time of the answer, and then the server would only work in vain.
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

// Pass is Enter for a call that does not wait.
func (t *Throttle) Pass() { t.inside.Add(1) }

// Leave ends a call that was made at a time and may have been answered. It was slow if it took that long, and without
// an answer if somebody has waited twice as long.
func (t *Throttle) Leave(made time.Time, slow time.Duration, answered bool) {
	now := time.Now()
	took := now.Sub(made)
	usual := t.usual(now, took, answered)
	switch {
	case took >= 2*slow && !answered:
		t.look(now, slow)
	case took >= slow && !answered: // it had no more time
	case took >= slow && took >= 2*usual:
		t.slow.Add(1)
		t.look(now, slow)
	default:
		t.quick.Add(1)
		t.raise()
	}
	t.leave()
}

// usual returns how long an answer takes if the server has nothing else to do, as far as it is known.
func (t *Throttle) usual(now time.Time, took time.Duration, answered bool) time.Duration {
	if t.Rest != nil {
		return t.Rest.usual(now, took, answered)
	}
	if last, minute := t.minute.Load(), now.Unix()/60; last != minute && t.minute.CompareAndSwap(last, minute) {
		t.before.Store(t.best.Swap(0))
	}
	best := t.best.Load()
	if answered && (best == 0 || int64(took) < best) {
		best = max(int64(took), 1)
		t.best.Store(best)
	}
	if before := t.before.Load(); before > 0 && (best == 0 || before < best) {
		best = before
	}
	return time.Duration(best)
}

func (t *Throttle) raise() {
	switch limit := t.limit.Load(); {
	case limit >= unlimited:
		t.limit.CompareAndSwap(limit, 0)
	case limit > 0:
		t.limit.CompareAndSwap(limit, limit+1)
	}
}

// look lowers the bound, if the answers of the last while say so.
func (t *Throttle) look(at time.Time, slow time.Duration) {
	now, since := at.UnixNano(), t.since.Load()
	if now-since < int64(slow) || !t.since.CompareAndSwap(since, now) {
		return
	}
	quick, slowly := t.quick.Swap(0), t.slow.Swap(0)
	if now-since < 3*int64(slow) && (quick == 0 || slowly > quick) {
		t.lower()
	}
}

// lower halves the bound, or the number of calls under way if that is smaller. It reports false if it can do no more.
func (t *Throttle) lower() bool {
	if t.Rest != nil && t.Rest.lower() {
		return true
	}
	n, limit := t.inside.Load(), t.limit.Load()
	if limit == leastAtATime {
		return false
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
