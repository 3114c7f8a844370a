package idempotency

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// patience is how long a client waits for its run to be settled before it gets its
// answer anyway and settling goes on in the background.
const patience = 2 * time.Second

// Bounds of what waits in the background for the store to come back. New requests are
// refused while the store is away, so that only runs that were in flight at that
// moment get here.
const (
	maxPendingBytes = 64 << 20
	maxPending      = 4096
)

var (
	// errSuperseded says that the run's answer must not be shown: another run's answer
	// is recorded, or another run is in flight, or may be. The record comes with it.
	errSuperseded = errors.New("idempotency: another run has taken over")

	// errPending says that settling goes on in the background.
	errPending = errors.New("idempotency: settling goes on in the background")

	errRetentionEnded = errors.New("idempotency: retention ended")
	errTooManyPending = errors.New("idempotency: too many runs wait to be settled")
)

// A verdict is how a run is settled in the store.
type verdict struct {
	outcome Outcome
	hold    bool   // for an Unknown outcome: Hold rather than Release
	answer  []byte // for a Final outcome, as stored
	run     *run   // whose answer it is, or nil
}

// lasting reports whether the verdict says something that must not be forgotten.
func (v verdict) lasting() bool { return v.outcome == Final || v.outcome == Unknown && v.hold }

// settle brings the end of a run to the store. It tries for as long as a client can be
// expected to wait, then hands over to the background.
//
// The errors are errPending and errSuperseded; with the latter comes the record that
// stands in the way of the answer.
func (l *lease) settle(v verdict) (rec Record, err error) {
	l.settles()
	returned := false
	defer func() {
		if !returned { // runtime.Goexit in a function of the program: nobody would end it
			l.end()
		}
	}()
	rec, err = l.settleSeen(v)
	returned = true
	return rec, err
}

// settleSeen settles while the client waits.
func (l *lease) settleSeen(v verdict) (Record, error) {
	start := time.Now()
	for n := 1; ; n++ {
		rec, err := l.try(v, min(l.haste(n), patience-time.Since(start)))
		if err == nil || errors.Is(err, errSuperseded) {
			l.end()
			return rec, err
		}
		l.fail()
		pause := backoff(n)
		if time.Since(start)+pause >= patience || !l.core.work.pause(pause) {
			return l.settleUnseen(v, n, err)
		}
	}
}

// settleUnseen hands over to the background. The client gets the run's answer before it
// is recorded, because an effect has happened and only this answer tells of it. But if the
// claim has lapsed meanwhile, another run may have ended with another answer, which is
// the one that counts: then the client has to ask again.
func (l *lease) settleUnseen(v verdict, failures int, cause error) (Record, error) {
	sure := l.undisputed()
	err := l.settleLater(v, failures, cause)
	if v.outcome == Final && !sure && !l.claim.Hold {
		return Record{State: StateClaimed, Fingerprint: l.claim.Fingerprint}, errSuperseded
	}
	return Record{}, err
}

// try makes one attempt to settle, with calls that together take no longer than the timeout.
func (l *lease) try(v verdict, timeout time.Duration) (Record, error) {
	until := time.Now().Add(timeout)
	err := l.conclude(v, timeout)
	if !errors.Is(err, ErrNotOwner) {
		return Record{}, err
	}
	if !v.lasting() {
		// Whoever has the record now decides: there is nothing of this run to be kept.
		return Record{}, nil
	}
	rec, err := l.reclaim(time.Until(until))
	if err != nil {
		return rec, err
	}
	err = l.conclude(v, time.Until(until))
	if errors.Is(err, ErrNotOwner) {
		return rec, errSuperseded
	}
	return Record{}, err
}

// conclude makes the store call that a verdict stands for.
func (l *lease) conclude(v verdict, timeout time.Duration) error {
	switch {
	case v.outcome == Final:
		return l.complete(v.answer, timeout)
	case v.lasting():
		return l.call("hold", timeout, func(ctx context.Context) error {
			return l.core.store.Hold(ctx, l.key, l.claim.Owner)
		})
	default:
		return l.release(timeout)
	}
}

func (l *lease) complete(answer []byte, timeout time.Duration) error {
	c := Completion{Answer: answer, TTL: l.set.ttl}
	if l.core.local {
		return l.core.store.Complete(context.Background(), l.key, l.claim.Owner, c)
	}
	return l.call("complete", timeout, func(ctx context.Context) error {
		return l.core.store.Complete(ctx, l.key, l.claim.Owner, c)
	})
}

func (l *lease) release(timeout time.Duration) error {
	return l.call("release", timeout, func(ctx context.Context) error {
		return l.core.store.Release(ctx, l.key, l.claim.Owner)
	})
}

// reclaim gets the claim back for a run that has lost it, where that is still possible:
// the record may be gone, because the store lost it or its retention ended, or be free
// again, because the run that took over ended without an answer. The effect of this run
// has happened, and recording it is what prevents the next one. The owner is the same,
// so that a claim whose reply is lost does not stand in the way of the next try, and the
// lease is renewed again until the run is settled.
func (l *lease) reclaim(timeout time.Duration) (Record, error) {
	sent := time.Now()
	rec, err := l.core.claim(l.client, timeout, l.key, l.claim)
	if err != nil {
		l.observe(Event{Kind: EventStoreError, Op: "claim", Err: err})
		return Record{}, err
	}
	if !rec.Mine {
		return rec, errSuperseded
	}
	l.resume(sent)
	return rec, nil
}

// settleLater goes on settling in the background until it succeeds, another run's
// answer stands in its place, the retention ends or the guard is shut down. Giving up
// any earlier is what makes duplicates: a store that is away for a minute would come
// back with a claim that lapses. Meanwhile the lease is renewed.
func (l *lease) settleLater(v verdict, failures int, cause error) error {
	held := int64(len(v.answer))
	if !l.core.pending.add(held) {
		if v.run != nil {
			v.answer = v.run.notKept()
			held = int64(len(v.answer))
		}
		if !l.core.pending.add(held) {
			return l.giveUp(errTooManyPending)
		}
	}
	if !l.core.work.enter() {
		l.core.pending.remove(held)
		return l.giveUp(ErrShutdown)
	}
	v.run = nil // the answer is all that is kept
	l.forgetRun()
	l.observe(Event{Kind: EventRecordingDelayed, Outcome: v.outcome, Err: cause})
	until := time.Now().Add(l.claim.Retention)
	go func() {
		defer l.core.work.leave()
		defer l.core.pending.remove(held)
		for n := failures; ; n++ {
			if !l.core.work.pause(backoff(n)) {
				return // Shutdown gives it up and reports it, before it returns
			}
			if _, err := l.try(v, l.timeout()); err == nil || errors.Is(err, errSuperseded) {
				l.end()
				return
			}
			if time.Now().After(until) {
				_ = l.giveUp(errRetentionEnded)
				return
			}
		}
	}()
	return errPending
}

// giveUp leaves the record to its lease, and says so, once. The client has its answer
// all the same.
func (l *lease) giveUp(err error) error {
	if l.end() {
		l.observe(Event{Kind: EventRecordingLost, Err: err})
	}
	return errPending
}

// abandon gives back a claim whose reply never came, in the background: it may have
// been granted, and would then block the key for a whole lease, or, under Hold, make it
// look like a run of unknown outcome. A store that answers "not the owner" may yet
// execute the claim, which is still on its way, so that the release is repeated for as
// long as the claim could last. A shutdown does not wait for that, but it does wait for
// the store to answer. Of the claims of a long outage as many as of runs are given back;
// the others end with their leases.
func (l *lease) abandon() {
	if !l.core.ghosts.add(0) {
		return
	}
	if !l.core.work.enter() {
		l.core.ghosts.remove(0)
		return
	}
	until := time.Now().Add(l.claim.Lease)
	go func() {
		defer l.core.work.leave()
		defer l.core.ghosts.remove(0)
		for n := 1; ; n++ {
			err := l.release(l.timeout())
			if err == nil {
				return
			}
			end := l.core.work.abort
			if errors.Is(err, ErrNotOwner) {
				end = l.core.work.quit
			}
			pause := backoff(n)
			if time.Now().Add(pause).After(until) || !sleep(pause, end) {
				return
			}
		}
	}()
}

// pause sleeps in the background. It is false when a shutdown has run out of time.
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

// unsettled are the runs that the store has failed to settle so far. A shutdown that has
// run out of time reports them itself: the process may end as soon as it returns, and
// whoever tries to settle them then may hang in a call of the store.
type unsettled struct {
	mu     sync.Mutex
	leases map[*lease]struct{}
}

func (u *unsettled) add(l *lease) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.leases == nil {
		u.leases = make(map[*lease]struct{})
	}
	u.leases[l] = struct{}{}
}

func (u *unsettled) remove(l *lease) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.leases, l)
}

// giveUp gives all of them up.
func (u *unsettled) giveUp(err error) {
	u.mu.Lock()
	leases := slices.Collect(maps.Keys(u.leases))
	u.mu.Unlock()
	for _, l := range leases {
		_ = l.giveUp(err)
	}
}

// pendingAnswers bounds the number and the memory of what waits for the store.
type pendingAnswers struct {
	mu    sync.Mutex
	n     int
	bytes int64
}

func (p *pendingAnswers) add(bytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n >= maxPending || p.bytes+bytes > maxPendingBytes {
		return false
	}
	p.n++
	p.bytes += bytes
	return true
}

func (p *pendingAnswers) remove(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	p.bytes -= bytes
}
