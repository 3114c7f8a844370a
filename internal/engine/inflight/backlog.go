package inflight

import (
	"maps"
	"slices"
	"sync"
)

// A Debt is what the store has failed to take so far.
type Debt interface {
	// GiveUp reports, once, that the store does not get it any more.
	GiveUp(err error)
}

// Debts holds the runs that the store has failed to settle, and the claims that it has failed
// to take back. A shutdown that runs out of time reports them itself: the process may end as soon
// as it returns, and the goroutine that settles a run may hang in a call of the store by then.
type Debts struct {
	mu    sync.Mutex
	debts map[Debt]struct{}
}

// Add adds a debt, once.
func (u *Debts) Add(d Debt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.debts == nil {
		u.debts = make(map[Debt]struct{})
	}
	u.debts[d] = struct{}{}
}

// Remove removes a debt, if it is there.
func (u *Debts) Remove(d Debt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.debts, d)
}

// GiveUp gives all of them up.
func (u *Debts) GiveUp(err error) {
	u.mu.Lock()
	debts := slices.Collect(maps.Keys(u.debts))
	clear(u.debts)
	u.mu.Unlock()
	for _, d := range debts {
		d.GiveUp(err)
	}
}

// Bounds of what waits in the background for the store to come back. New requests are
// refused while the store is away, so only runs that were in flight at that moment get
// here.
const (
	maxPendingBytes = 64 << 20
	maxPending      = 4096
)

// A Backlog bounds the number and the memory of what waits for the store.
type Backlog struct {
	mu    sync.Mutex
	n     int
	bytes int64
}

// Add takes room for one more, with that many bytes, or reports false if there is none.
func (b *Backlog) Add(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n >= maxPending || b.bytes+bytes > maxPendingBytes {
		return false
	}
	b.n++
	b.bytes += bytes
	return true
}

// Crowded reports whether more than half of the number is reached.
func (b *Backlog) Crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n > maxPending/2
}

// Remove gives the room back.
func (b *Backlog) Remove(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	b.bytes -= bytes
}

// Size returns how much of the room is taken.
func (b *Backlog) Size() (n int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n, b.bytes
}
