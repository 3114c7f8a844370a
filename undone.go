package idempotency

import (
	"errors"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// What is left of a claim under which nothing was done: for how long its record is kept, whether
// the key stays bound to its request, and how a claim is given back whose reply never came.

// notExecuted is the verdict for a run that is known to have had no effect. If it has begun a
// step, it is remembered all the same: only the outcome says that nothing was done.
func (u *run) notExecuted(t task) verdict {
	v := verdict{outcome: NotExecuted}
	if u.op.effects.Load() == 0 {
		v.release = u.lease.undone()
		v.release.Unbind = u.guard.set.rebinding || t.redirected()
	}
	return v
}

// lateClaims is how long a claim may take to arrive whose reply was lost, or that the client
// library has sent twice: longer than a system keeps sending what its process has given up.
const lateClaims = 15 * time.Minute

// undone is what the store is told about a claim under which nothing was done. All that the
// record is for from then on is its owner, whose claim must not be granted if it arrives
// again. Under Rerun a claim that comes later than that blocks the key for a lease, but under
// Hold it would hold the key.
func (l *lease) undone() store.Release {
	keep := minRetentionInLeases * l.claim.Lease
	if l.claim.Hold {
		keep = max(keep, lateClaims)
	}
	return store.Release{Undone: true, Keep: keep}
}

// unused is what the store is told about a claim under which no run has begun.
func (l *lease) unused() store.Release {
	rel := l.undone()
	rel.Unused = true
	return rel
}

// redirected implements [task]. The key goes to the other place with the request, which has
// another path there, and so another fingerprint.
func (h *handlerRun) redirected() bool { return keepsMethod(h.rec.Status()) }

func (j *job) redirected() bool { return false }

// keepsMethod reports whether a status tells the client to make the same request elsewhere.
func keepsMethod(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

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
// At most maxPending claims are given back at a time, and those that are late give way when there
// are half as many.
type ghost struct {
	lease    *lease
	undone   store.Release
	begun    time.Time
	answered time.Time // for the first time; zero while the store has not answered
	failures int       // in a row
	closing  bool      // a shutdown has begun
	told     atomic.Bool
}

// ghostPause is the longest pause between two releases of a ghost while the store is away. There
// may be thousands of ghosts, and nobody waits for them.
const ghostPause = 30 * time.Second

var errTooManyGhosts = errors.New("too many claims wait to be given back")

// releaseGhost gives back a claim whose reply never came.
func (l *lease) releaseGhost() {
	g := &ghost{lease: l, undone: l.unused(), begun: time.Now()}
	g.undone.Unanswered = true
	core := l.core
	if !core.ghosts.add(0) {
		g.giveUp(errTooManyGhosts)
		return
	}
	if !core.late.enter() {
		core.ghosts.remove(0)
		g.giveUp(ErrShutdown)
		return
	}
	core.unsettled.add(g)
	go func() {
		defer core.late.leave()
		defer core.ghosts.remove(0)
		defer core.unsettled.remove(g)
		if err := g.release(); err != nil {
			g.giveUp(err)
		}
	}()
}

// release repeats the release until it is certain, or as long as it is worth it. Its error says
// why it has given up before the store has answered.
func (g *ghost) release() error {
	l := g.lease
	for n := 1; ; n++ {
		err := l.release(l.claim.Owner, g.undone, min(l.timeout(), time.Until(g.end())))
		if err == nil {
			return nil
		}
		if errors.Is(err, store.ErrNotOwner) {
			l.core.unsettled.remove(g)
			g.failures = 0
			if !g.pauseForLate(n) {
				return nil
			}
			continue
		}
		l.core.unsettled.add(g)
		g.failures++
		if !g.pauseForStore() {
			if g.closing {
				return ErrShutdown
			}
			return errRetentionEnded
		}
	}
}

// end is until when the store is asked.
func (g *ghost) end() time.Time {
	end := g.begun.Add(g.lease.claim.Retention)
	if !g.closing {
		return end
	}
	begun := g.lease.core.work.closedAt
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
	l, since, pause := g.lease, time.Since(g.answered), backoff(n)
	late := since > l.claim.Lease
	if since >= g.undone.Keep || late && l.core.ghosts.crowded() {
		return false
	}
	if late {
		pause = min(since, g.undone.Keep-since)
	}
	return time.Now().Add(pause).Before(g.end()) && sleep(pause, l.core.work.quit)
}

// pauseForStore pauses after the store has failed, and reports whether to try again. The beginning
// of a shutdown ends the pause, and from then on they are short.
func (g *ghost) pauseForStore() bool {
	core := g.lease.core
	short := backoff(g.failures)
	if g.closing {
		return time.Now().Add(short).Before(g.end()) && core.late.pause(short)
	}
	long := min(20*time.Millisecond<<min(g.failures-1, 11), ghostPause)
	if time.Now().Add(long).After(g.end()) {
		return false
	}
	if !sleep(short, core.work.quit) || !core.sleepUntilAnswer(long-short) {
		g.closing, g.failures = true, 0
	}
	return true
}

// giveUp implements [debt].
func (g *ghost) giveUp(err error) {
	if !g.told.CompareAndSwap(false, true) {
		return
	}
	consequence := "its key may be blocked for a lease"
	if g.lease.claim.Hold {
		consequence = "its key may become held"
	}
	g.lease.observe(event.Event{Kind: event.ClaimLeft, Err: fmt.Errorf(
		"idempotency: a claim that may have been granted is not given back, and %s, although nothing has run under it: %w", consequence, err)})
}

// answered tells one ghost that the store answers.
func (c *core) answered() {
	select {
	case c.back <- struct{}{}:
	default:
	}
}

// sleepUntilAnswer sleeps until the store has answered another call, or d is over. It reports
// false if a shutdown begins.
func (c *core) sleepUntilAnswer(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.back:
		return true
	case <-c.work.quit:
		return false
	}
}
