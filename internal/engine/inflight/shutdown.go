package inflight

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Shutdown refuses new requests, and waits until all work is done or ctx ends.
func (w *Work) Shutdown(ctx context.Context) error {
	w.closing.Do(func() {
		w.n.Add(closed + 1) // its own piece of work, so that a last one ends
		w.ClosedAt = time.Now()
		close(w.Quit)
		w.Leave()
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
	w.Stop()
	return context.Cause(ctx)
}

// Stop lets the background give up.
func (w *Work) Stop() { w.aborting.Do(func() { close(w.abort) }) }

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
