package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/store"
)

// A ghost is a claim whose reply never came. It may have been granted, and would then block the
// key for a whole lease or, under Hold, make it look like a run of unknown outcome. The guard
// gives it back in the background.
//
// The claim may still be on its way when the store answers "not the owner". So the release is
// repeated for as long as a record would remember the owner that has released it, counted from
// the first such answer, or until the retention ends. The end of the lease is not enough, whatever
// the recovery policy: a claim that has lapsed is held if that claim or the one that finds it says
// Hold, and another version of the service may say so. A claim seldom comes later than a lease.
// From then on each pause is as long as all the time before, and a claim that lapses meanwhile is
// released all the same.
//
// While the store does not answer, the pauses grow to ghostPause. The next call of any request
// that the store answers wakes one ghost, and its release wakes the next. A shutdown gives the
// store one more lease to answer, and no time for claims that are late.
//
// A store that is slow fails claims for lack of time, and each of them leaves a ghost. If all of these
// asked at once, requests would find no connection free and leave more of them, so that an overload
// would never end. So if there are more than fewGhosts, ghostTurns ask at a time, in the order in which they came.
//
// At most maxPending claims are given back at a time, and those that are late give way when there
// are half as many.
type ghost struct {
	lease    *Lease
	undone   store.Release
	begun    time.Time
	answered time.Time // for the first time; zero while the store has not answered
	failures int       // in a row
	closing  bool      // a shutdown has begun
	told     atomic.Bool
}

// release repeats the release until it is certain, or as long as it is worth it. Its error says
// why it has given up before the store has answered.
func (g *ghost) release() error {
	l := g.lease
	for n := 1; ; n++ {
		err := g.try()
		if err == nil {
			return nil
		}
		if errors.Is(err, store.ErrNotOwner) {
			l.core.unsettled.Remove(g)
			g.failures = 0
			if !g.pauseForLate(n) {
				return nil
			}
			continue
		}
		l.core.unsettled.Add(g)
		g.failures++
		if !g.pauseForStore() {
			if g.closing {
				return ErrShutdown
			}
			return errRetentionEnded
		}
	}
}

// try makes one call, when it is its turn. After the beginning of a shutdown no request needs the store.
func (g *ghost) try() error {
	l := g.lease
	if n, _ := l.core.ghosts.Size(); n > fewGhosts {
		select {
		case l.core.turns <- struct{}{}:
			defer func() { <-l.core.turns }()
		case <-l.core.work.Quit:
		}
	}
	return l.release(l.claim.Owner, g.undone, min(l.timeout(), time.Until(g.end())))
}

// end is until when the store is asked.
func (g *ghost) end() time.Time {
	end := g.begun.Add(g.lease.claim.Retention)
	if !g.closing {
		return end
	}
	begun := g.lease.core.work.ClosedAt
	if g.begun.After(begun) {
		begun = g.begun
	}
	if last := begun.Add(g.lease.claim.Lease); last.Before(end) {
		end = last
	}
	return end
}

// pauseForLate pauses after the store has answered that the claim is not there, and reports
// whether it may still come. A shutdown does not wait for it.
func (g *ghost) pauseForLate(n int) bool {
	if g.answered.IsZero() {
		g.answered = time.Now()
	}
	l, since, pause := g.lease, time.Since(g.answered), inflight.Backoff(n)
	late := since > l.claim.Lease
	if since >= g.undone.Keep || late && l.core.ghosts.Crowded() {
		return false
	}
	if late {
		pause = min(since, g.undone.Keep-since)
	}
	return time.Now().Add(pause).Before(g.end()) && inflight.Sleep(pause, l.core.work.Quit)
}

// pauseForStore pauses after the store has failed, and reports whether to try again. The beginning
// of a shutdown ends the pause, and from then on they are short.
func (g *ghost) pauseForStore() bool {
	core := g.lease.core
	short := inflight.Backoff(g.failures)
	if g.closing {
		return time.Now().Add(short).Before(g.end()) && core.late.Pause(short)
	}
	doublings := g.failures - 1
	if n, _ := core.ghosts.Size(); n > fewGhosts {
		doublings += outage
	}
	long := min(20*time.Millisecond<<min(doublings, 11), ghostPause)
	if time.Now().Add(long).After(g.end()) {
		return false
	}
	if !inflight.Sleep(short, core.work.Quit) || !core.sleepUntilAnswer(long-short) {
		g.closing, g.failures = true, 0
	}
	return true
}

// giveUp implements [debt].
func (g *ghost) GiveUp(err error) {
	if !g.told.CompareAndSwap(false, true) {
		return
	}
	consequence := "its key may be blocked for a lease"
	if g.lease.claim.Hold {
		consequence = "its key may become held"
	}
	g.lease.Observe(event.Event{Kind: event.ClaimLeft, Err: fmt.Errorf(
		"idempotency: a claim that may have been granted is not given back, and %s, although nothing has run under it: %w", consequence, err)})
}

// outage lengthens the pauses of many ghosts by as many doublings. It is not one reply that was lost, and a store that refuses each
// call, as one whose password has changed, would get several releases for each claim within seconds.
const outage = 4

// ghostPause is the longest pause between two releases of a ghost while the store is away. There
// may be thousands of ghosts, and nobody waits for them.
const ghostPause = 30 * time.Second

var errTooManyGhosts = errors.New("too many claims wait to be given back")

// releaseGhost gives back a claim whose reply never came.
func (l *Lease) releaseGhost() {
	g := &ghost{lease: l, undone: l.unused(), begun: time.Now()}
	g.undone.Unanswered = true
	core := l.core
	if !core.ghosts.Add(0) {
		g.GiveUp(errTooManyGhosts)
		return
	}
	if !core.late.Enter() {
		core.ghosts.Remove(0)
		g.GiveUp(ErrShutdown)
		return
	}
	core.unsettled.Add(g)
	go func() {
		defer core.late.Leave()
		defer core.ghosts.Remove(0)
		defer core.unsettled.Remove(g)
		if err := g.release(); err != nil {
			g.GiveUp(err)
		}
	}()
}
