package idempotency

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file holds what outlives requests, how much of it there is, and how it ends.

// Stats are what a guard is busy with in this process at one moment; see [Guard.Stats].
type Stats struct {
	// Running are the runs in flight: handlers and functions of [Do] that have not returned,
	// and those whose client waits while the run is settled.
	Running int
	// Waiting are the requests that wait for the answer of another run, as [WithWait] lets
	// them. [WithWaitingBytes] bounds them.
	Waiting int
	// Pending are the runs that have ended and that the store could not be told about yet. They
	// are settled in the background when the store is back. PendingBytes is the memory that
	// their answers take. At most 4,096 runs are pending, with 64 MiB.
	Pending      int
	PendingBytes int64
	// GivingBack are the claims whose reply never came, and that the guard releases in the
	// background because they may have been granted. Nothing has run under them. At most 4,096
	// are given back at a time. Under Rerun that takes two leases from the store's first answer,
	// and under Hold 15 minutes if that is longer: so late a claim may still arrive.
	GivingBack int
	// Abandoned are the calls that a store has not returned from although their time is over.
	// Each keeps a goroutine. At 4,096 no further call is made until one returns. A store that
	// obeys its context ([store.ContextStore]) has none.
	Abandoned int
}

// Stats returns what the guard is busy with in this process, together with all guards made from
// it by [Guard.With]. It asks no store, and is cheap enough to be called for every scrape of
// metrics.
func (g *Guard) Stats() Stats {
	c := g.core
	s := Stats{Running: int(c.running.Load()), Waiting: c.room.size(), Abandoned: int(c.abandoned.Load())}
	s.Pending, s.PendingBytes = c.pending.size()
	s.GivingBack, _ = c.ghosts.size()
	return s
}

func (room *waitingRoom) size() int {
	room.mu.Lock()
	defer room.mu.Unlock()
	return room.all.n
}

func (b *backlog) size() (n int, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n, b.bytes
}

// Shutdown ends the guard, and all guards made from it by [Guard.With]. From then on every new
// request with a key gets 503, also where an answer is recorded, and those that wait for
// another's answer get 409. [Do] returns [ErrShutdown], also inside a run that is still in
// flight. Steps of such a run go on.
//
// Shutdown returns when the runs in flight have ended and are settled, and the functions of
// [WithResolver] that were called have returned; or when ctx ends. In the
// second case it gives up the runs that the store has failed to settle, reports each as
// [event.RecordingLost], and returns the context's error.
//
// Claims whose reply never came, and under which nothing has run, are given back before. The store
// has one more lease to answer that, if ctx does not end before. Shutdown reports each that it gives
// up as [event.ClaimLeft]. That is not an error, also when ctx has ended.
//
// Give ctx a deadline. While the store is away, Shutdown waits for as long as runs are worth
// settling: until their retention ends, and without end for those that hold their key.
//
// Call http.Server.Shutdown and Guard.Shutdown together, with one deadline. When both have
// returned, close the store. The example is a function for that. Shutdown may be called more
// than once.
func (g *Guard) Shutdown(ctx context.Context) error {
	err := g.core.work.shutdown(ctx)
	// No request is left that could make another claim. Those that are being given back know
	// since the beginning of the shutdown.
	if lateErr := g.core.late.shutdown(ctx); err != nil || lateErr != nil {
		g.core.late.stop()
		g.core.unsettled.giveUp(ErrShutdown)
	}
	// Nothing depends on a shadow: it gets the time of one call of the store.
	brief, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_ = g.core.shadow.work.shutdown(brief)
	return err
}

// work counts what must be finished before a shutdown is complete: runs, renewals and
// background recordings. It is a WaitGroup that can be closed, and costs a request two
// atomic additions.
type work struct {
	n atomic.Int64 // pieces of work, plus workClosed once new requests are refused

	idle   chan struct{} // closed when the last piece of work ends after the close
	isIdle sync.Once
	// quit is closed when new requests are refused. abort is closed when a shutdown's
	// time is over and the background has to give up.
	quit, abort chan struct{}
	closing     sync.Once
	aborting    sync.Once
	closedAt    time.Time // when quit was closed
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

// pause sleeps in the background. It reports false when a shutdown has run out of time.
func (w *work) pause(d time.Duration) bool { return sleep(d, w.abort) }

func sleep(d time.Duration, end <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-end:
		return false
	}
}

// shutdown refuses new requests, and waits until all work is done or ctx ends.
func (w *work) shutdown(ctx context.Context) error {
	w.closing.Do(func() {
		w.n.Add(workClosed + 1) // its own piece of work, so that a last one ends
		w.closedAt = time.Now()
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
	w.stop()
	return context.Cause(ctx)
}

// stop lets the background give up.
func (w *work) stop() { w.aborting.Do(func() { close(w.abort) }) }

// A debt is what the store has failed to take so far.
type debt interface {
	// giveUp reports, once, that the store does not get it any more.
	giveUp(err error)
}

// unsettled holds the runs that the store has failed to settle, and the claims that it has failed
// to take back. A shutdown that runs out of time reports them itself: the process may end as soon
// as it returns, and the goroutine that settles a run may hang in a call of the store by then.
type unsettled struct {
	mu    sync.Mutex
	debts map[debt]struct{}
}

func (u *unsettled) add(d debt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.debts == nil {
		u.debts = make(map[debt]struct{})
	}
	u.debts[d] = struct{}{}
}

func (u *unsettled) remove(d debt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.debts, d)
}

// giveUp gives all of them up.
func (u *unsettled) giveUp(err error) {
	u.mu.Lock()
	debts := slices.Collect(maps.Keys(u.debts))
	clear(u.debts)
	u.mu.Unlock()
	for _, d := range debts {
		d.giveUp(err)
	}
}

// Bounds of what waits in the background for the store to come back. New requests are
// refused while the store is away, so only runs that were in flight at that moment get
// here.
const (
	maxPendingBytes = 64 << 20
	maxPending      = 4096
)

// A backlog bounds the number and the memory of what waits for the store.
type backlog struct {
	mu    sync.Mutex
	n     int
	bytes int64
}

func (b *backlog) add(bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n >= maxPending || b.bytes+bytes > maxPendingBytes {
		return false
	}
	b.n++
	b.bytes += bytes
	return true
}

// crowded reports whether more than half of the number is reached.
func (b *backlog) crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n > maxPending/2
}

func (b *backlog) remove(bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n--
	b.bytes -= bytes
}
