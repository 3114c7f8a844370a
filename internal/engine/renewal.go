package engine

import (
	"errors"
	"math"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/engine/inflight"
	"example.com/idempotency/store"
)

// keep starts the renewals. The context of the run is cancelled when the lease is lost.
func (l *Lease) keep(run stopper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run, l.owner = run, l.claim.Owner
	l.renewer = newRenewer(l)
	l.renewer.timer.Reset(l.claim.Lease / renewalsPerLease)
}

// resume starts the renewals again, after the claim was lost and granted to the new owner by a
// claim that was sent at that time.
func (l *Lease) resume(owner store.Owner, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = owner
	l.lost, l.sure = false, sent.Add(l.margin())
	if l.renewer != nil { // it may have fired just now, for the claim that was lost
		l.renewer.free()
		l.renewer = newRenewer(l)
		l.renewer.timer.Reset(l.claim.Lease / renewalsPerLease)
	}
}

// keepClaim makes sure that the store does not forget the claim, even in a crash, before the run does
// anything that would outlive it. A renewal is durable, and so is the claim before it. If it fails, the
// claim is not sure, and the run is told.
func (l *Lease) keepClaim() {
	if !l.isFleeting() || !l.valid() {
		return
	}
	err := l.insist(0, func(timeout time.Duration) error { return l.requestRenewal(l.claim.Owner, timeout) })
	l.kept.Store(err == nil)
	if err != nil {
		l.lose(err)
	}
}

// isFleeting reports whether the store may lose the claim before its lease ends.
func (l *Lease) isFleeting() bool { return l.mayBeLost && !l.kept.Load() }

// insist makes a call of the owner, again and again if it must, for as long as a run tries to record
// its answer. The call sends a value of size bytes.
func (l *Lease) insist(size int, call func(timeout time.Duration) error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := l.callInSlot(size, l.haste(n, time.Since(start), size), call)
		if errors.Is(err, store.ErrNotOwner) {
			l.lose(err) // now, and not when the next renewal finds out
		}
		if err == nil || errors.Is(err, store.ErrNotOwner) || errors.Is(err, store.ErrTooLarge) {
			return err
		}
		pause := inflight.Backoff(n)
		if time.Since(start)+pause >= patience || !l.core.work.Pause(pause) {
			return err
		}
	}
}

// callInSlot makes a call for a run that goes on.
func (l *Lease) callInSlot(size int, timeout time.Duration, call func(time.Duration) error) (err error) {
	s := l.takeSlot(size)
	defer func() { s.end(err) }()
	return call(timeout)
}

// outliveRun says that the run is over. A renewal that is refused from now on may have been
// refused because the run is settled already, by a call whose reply was lost.
func (l *Lease) outliveRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runOver = true
}

// forgetRun lets go of the run's memory, which the lease may have to outlive.
func (l *Lease) forgetRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run = nil
}

// end stops the renewals and reports whether this call was the first to do so. The result
// of a renewal under way no longer matters.
func (l *Lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.ended = true
	if l.renewer != nil {
		l.renewer.free()
		l.renewer = nil
	}
	return true
}

// hasEnded reports whether end was called: the run is settled, or given up.
func (l *Lease) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// valid reports whether the claim is surely ours, and not given up.
func (l *Lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && !l.ended && time.Now().Before(l.sure)
}

// undisputed reports whether nobody else can have the claim yet, although it may have been
// given up.
func (l *Lease) undisputed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && !l.isFleeting() && time.Now().Before(l.sure)
}

// wasKept reports whether the claim was not lost while the run lasted, and nobody else can have it yet
// unless it was given up.
func (l *Lease) wasKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lostInRun && !l.isFleeting() && time.Now().Before(l.sure)
}

func (l *Lease) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// lose tells the run, once, that its claim is not sure any more.
func (l *Lease) lose(err error) {
	l.mu.Lock()
	tell := !l.lost && !l.runOver && !l.ended
	l.lost, l.lostInRun = true, l.lostInRun || !l.runOver
	run := l.run
	l.mu.Unlock()
	if !tell {
		return
	}
	if run != nil {
		run.cancel(ErrLeaseLost)
	}
	l.Observe(event.Event{Kind: event.LeaseLost, Err: err})
}

// renew runs when the timer fires. It tries a renewal that failed again soon, with growing
// pauses, and does not wait for the next regular time: at a third of the lease, two
// failures in a row would lose it. Near the end of the lease the pauses shrink again, so
// that the last of them does not outlast a lease whose store is back. When the lease is
// lost the run is told. Renewing then goes on unless another has taken over: as long as
// the run lasts it should not be overtaken.
func (l *Lease) renew(r *renewer) {
	// A shutdown that has run out of time does not wait for it. The run goes on all the same.
	if l.core.work.Enter() {
		defer l.core.work.Leave()
	}
	sent, err := l.renewInSlot()

	l.mu.Lock()
	if l.renewer != r {
		l.mu.Unlock()
		return
	}
	lost, again := false, true
	next := l.claim.Lease / renewalsPerLease
	switch {
	case err == nil:
		l.failures = 0
		if !l.lost {
			l.sure = sent.Add(l.margin())
		}
		took := time.Since(sent)
		next -= took + took/64 // runs that have renewed at once drift apart
	case errors.Is(err, store.ErrNotOwner):
		lost, again = true, false
	default:
		l.failures++
		next = min(inflight.Backoff(l.failures), next)
		if left := time.Until(l.sure); left > 0 {
			next = min(next, left/2)
		} else {
			lost = true
		}
	}
	if again { // at once, if an answer has taken all the time until the next renewal
		r.timer.Reset(max(next, time.Millisecond))
	}
	l.mu.Unlock()

	if lost {
		l.lose(err)
	}
}

// renewInSlot sends a renewal in a slot, and returns when.
func (l *Lease) renewInSlot() (sent time.Time, err error) {
	sent = time.Now()
	owner, over, timeout := l.nextRenewal(sent)
	if timeout <= 0 {
		return sent, errStoreTimeout
	}
	var s slot
	if !over {
		s = l.takeSlot(0)
	} else if s, err = l.waitForSlot("renew", timeout/2, 0); err != nil {
		return sent, err
	}
	defer func() { s.end(err) }()
	if over {
		sent = time.Now()
		owner, _, timeout = l.nextRenewal(sent)
	}
	return sent, l.requestRenewal(owner, timeout)
}

// nextRenewal returns who renews, whether that is for a run that is over, and how long it may take. The timeout is not
// positive when it is too late: a run whose renewals fail must be told at the moment its claim is no longer sure, even
// while a call hangs. A first renewal that comes late, because the process was paused, may still find the claim in
// place.
func (l *Lease) nextRenewal(now time.Time) (owner store.Owner, over bool, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.sure.Sub(now)
	if l.lost || left <= 0 && l.failures == 0 {
		return l.owner, l.runOver, l.timeout()
	}
	return l.owner, l.runOver, min(l.timeout(), left)
}

// A renewer is a timer that fires into the lease it is lent to. Timers are reused:
// making one for each request would be two of its allocations.
type renewer struct {
	timer *time.Timer
	lease *Lease
}

func newRenewer(l *Lease) *renewer {
	if r, ok := l.core.renewers.Get().(*renewer); ok {
		r.lease = l
		return r
	}
	r := &renewer{lease: l}
	r.timer = time.AfterFunc(math.MaxInt64, func() { r.lease.renew(r) })
	return r
}

// free stops the timer. A renewer that has fired already may still be about to call
// its lease, and is left to the garbage collector.
func (r *renewer) free() {
	if r.timer.Stop() {
		c := r.lease.core
		r.lease = nil
		c.renewers.Put(r)
	}
}

// recordStep records a step for the owner. It tries for as long as a run tries to record its
// answer, because the next attempt repeats the effect of a step that is not recorded.
// It returns what is stored.
func (l *Lease) recordStep(name string, value []byte) (stored []byte, err error) {
	if stored, err = l.rules.Seals.Step(value, l.Name, l.claim.Fingerprint, name); err != nil {
		return nil, err
	}
	return stored, l.insist(len(stored), func(timeout time.Duration) error { return l.saveStep(l.claim.Owner, name, stored, timeout) })
}
