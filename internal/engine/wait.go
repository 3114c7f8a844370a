package engine

import (
	"context"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/store"
)

// pollPause is how often a store is asked that cannot wake a waiter, and rewatchPause
// how long a wakeup that may have been lost is waited for.
const (
	pollPause    = 50 * time.Millisecond
	maxPollPause = time.Second
	rewatchPause = 10 * time.Second
)

// await waits for the record, which is in flight, to settle or to become the caller's.
// It returns the last that was seen of it, which is a record still in flight when the
// time is over, the client has gone or the guard is shut down.
func (c *Claiming) await(rec store.Record, patience time.Duration) (store.Record, error) {
	room, place := &c.Lease.core.room, c.place()
	w := room.join(place)
	if w == nil {
		return rec, nil
	}
	defer room.leave(place, w)
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case t := <-w.turn:
		return c.takeTurn(w, t, timeout.C, rec)
	case <-w.settled:
		return w.record, w.err
	case <-timeout.C:
	case <-c.Client.Done():
	case <-c.Lease.core.work.Quit:
	}
	return rec, nil
}

// place is what the request takes of the waiting room.
func (c *Claiming) place() place {
	size := c.Size
	for name, values := range c.Fields {
		size += fieldMemory + len(name)
		for _, v := range values {
			size += valueMemory + len(v)
		}
	}
	return place{key: c.waitKey(), scope: c.Lease.ID.Scope, bytes: waiterSize + int64(max(0, size-waiterRequest))}
}

func (c *Claiming) waitKey() waitKey { return waitKey{c.Lease.Name, c.Lease.claim.Fingerprint} }

// takeTurn leads, and tells the others what it found. Somebody else leads on if it has to
// go, if the claim was granted to it, or if it is lost to a function of the program that panics
// or calls runtime.Goexit.
func (c *Claiming) takeTurn(w *wait, t turn, timeout <-chan time.Time, rec store.Record) (store.Record, error) {
	settled := false
	defer func() {
		if !settled {
			w.turn <- t
		}
	}()
	found, over, err := c.lead(&t, timeout, rec)
	switch {
	case found.Mine && c.Unwanted() != nil:
		c.Lease.GiveBack()
		found.State, found.Mine, found.Steps = store.Released, false, nil
		t = turn{due: true}
	case found.Mine:
		t = turn{}
	case !over:
		settled = true
		c.Lease.core.room.announce(c.waitKey(), w, found, err)
	}
	return found, err
}

// lead watches the store until the record is no longer in flight. over is true when the
// leader itself has to go.
//
// A request waits for an answer. If the run ends without one, the store grants none of the claims
// that are made here, and its client decides whether to try again. Otherwise ten duplicates of a
// request that fails would be ten runs in a row, although nobody has retried. A run whose process
// has died is another matter: nobody was told of its failure, and one of those who wait takes the
// record over.
func (c *Claiming) lead(t *turn, timeout <-chan time.Time, rec store.Record) (_ store.Record, over bool, err error) {
	var settled <-chan struct{}
	if watcher, ok := c.Lease.core.store.(store.Watcher); ok {
		watched, stop, err := c.watch(watcher)
		if err == nil {
			defer stop()
			settled = watched
		}
		// Without a watch the store is asked at intervals, as one that has none.
	}
	timer := time.NewTimer(pollPause)
	defer timer.Stop()
	for n := 1; ; n++ {
		// What has happened before the watch began is announced by nobody, so the first claim is made
		// at once. It also tells the store that somebody waits.
		if n > 1 || settled == nil {
			select {
			case <-settled:
			case <-timer.C:
			case <-timeout:
				return rec, true, nil
			case <-c.Client.Done():
				return rec, true, nil
			case <-c.Lease.core.work.Quit:
				return rec, true, nil
			}
		}
		var seen store.Record
		err := c.ask(&seen, time.Now(), !t.due)
		if err != nil && !isAnswer(err) {
			// The run that is waited for goes on; so does the waiting.
			timer.Reset(max(inflight.Backoff(n), pollPause))
			continue
		}
		if !t.due && seen.State == store.Released {
			seen.Fingerprint = c.Lease.claim.Fingerprint // it may be free for any payload
		}
		if err != nil || !c.inFlight(&seen) {
			return seen, false, err
		}
		rec = seen
		pause := rewatchPause
		if settled == nil {
			pause = min(pollPause<<min(n, 10), maxPollPause)
		}
		if t.due { // another was faster, and the store does not know yet that somebody waits for it
			t.due, pause = false, 0
		}
		// A lease that lapses is announced by nobody.
		timer.Reset(max(min(pause, rec.Lease), time.Millisecond))
	}
}

type watching struct {
	settled <-chan struct{}
	stop    func()
}

func (c *Claiming) watch(watcher store.Watcher) (<-chan struct{}, func(), error) {
	l := c.Lease
	w, err := bounded(context.WithoutCancel(l.Client), l.core, "watch", l.timeout(), func(ctx context.Context) (watching, error) {
		settled, stop, err := watcher.Watch(ctx, l.Name)
		if err == nil && ctx.Err() != nil {
			stop() // nobody is left to do it
			err = ctx.Err()
		}
		return watching{settled, stop}, err
	})
	if err != nil {
		l.Observe(event.Event{Kind: event.StoreError, Op: "watch", Err: err})
	}
	return w.settled, w.stop, err
}
