package idempotency

import (
	"crypto/rand"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/store"
)

// A lease is one request's claim on a record: how it is granted, kept alive and lost.
// A timer renews it, so a short run costs no goroutine.
type lease struct {
	access
	claim     store.Claim
	steps     map[string][]byte // of earlier attempts, as the claim was granted
	mayBeLost bool              // as the store has said of the claim
	kept      atomic.Bool       // the store has acknowledged a later call, so it will not forget the claim
	told      atomic.Bool       // observers or the log have got an event, and may have kept its context
	note      [longNoteLen]byte // the memory of the claim's note
	sums      digest.Checksums

	mu       sync.Mutex
	renewer  *renewer
	owner    store.Owner // under which it is renewed: the claim's, or that of a claim made later
	run      *runContext
	sure     time.Time // until then the claim is ours by the local clock
	failures int       // of renewals, in a row
	lost     bool
	runOver  bool // a loss concerns nobody any more
	// lostInRun says that the claim was lost before the run was over.
	lostInRun bool
	ended     bool
}

// renewalsPerLease leaves room for a failed renewal and its retries within a lease.
const renewalsPerLease = 3

// newLease returns an empty lease.
func (c *core) newLease() *lease { return c.leases.Get().(*lease) }

// freeLease takes back the lease of a request that was answered without it. Nobody may have it
// still: another store may have kept the claim, and an observer the context of an event.
func (c *core) freeLease(l *lease) {
	if c.local && l.attempt == 0 && !l.told.Load() {
		*l = lease{}
		c.leases.Put(l)
	}
}

// init prepares a lease for its claim, which is made now. The owner is made here, once: a claim that is
// sent again must be recognised as the same.
func (l *lease) init(now time.Time, a access, id identity) {
	l.access, l.sums = a, id.sums
	n := a.set.newNote(a.client, now, id.sums)
	l.claim = store.Claim{
		Note:        n.appendTo(l.note[:0]),
		Label:       labelOf(a.route),
		Owner:       newOwner(),
		Fingerprint: id.fingerprint,
		Lease:       a.set.lease,
		Retention:   a.set.retentionOrDefault(),
		Hold:        a.set.recovery == Hold && !a.set.transaction,
		HoldEnds:    a.set.retention > 0,
		MayBeLost:   a.set.transaction,
		Tenant:      a.id.tenant(),
	}
}

// keepKey seals the key into the claim, if the route keeps keys.
func (l *lease) keepKey() (err error) {
	l.claim.SealedKey, err = l.set.sealKey(l.id, l.key)
	return err
}

// observe reports an event of the operation that the claim is for.
func (l *lease) observe(e event.Event) {
	if l.set.heard() || isLogged(e.Kind) {
		if e.OperationID == "" {
			e.OperationID = l.set.intent(l.id, l.claim.Fingerprint).id()
		}
		if e.Attempt == 0 && l.attempt > 0 { // it is about this run
			n := readNote(l.claim.Note)
			e.Trace = n.trace
		}
	}
	l.told.Store(true)
	l.access.observe(e)
}

func newOwner() (o store.Owner) {
	_, _ = rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}

// recordEnds reports whether the record becomes free with time although nobody settles it.
func (l *lease) recordEnds() bool { return !l.claim.Hold || l.claim.HoldEnds }

// acquire asks the store for the claim, now, and reads the record. It can be called again, as the
// same owner, until the claim is granted.
func (l *lease) acquire(rec *store.Record, now time.Time, watch bool) error {
	claim := l.claim
	claim.Watch = watch
	err := l.requestClaim(rec, now, &claim, l.claimTimeout())
	if err == nil && rec.Mine {
		l.attempt, l.steps, l.mayBeLost = rec.Attempt, rec.Steps, rec.MayBeLost
		l.sure = now.Add(l.margin())
		if rec.Lapsed {
			l.reportTakeover(rec)
		}
	}
	return err
}

// margin is how long after sending a claim or a renewal the lease is surely ours: a
// tenth is left for clocks that run at different rates and for the way to the store.
func (l *lease) margin() time.Duration { return l.claim.Lease - l.claim.Lease/10 }

// keep starts the renewals. The context of the run is cancelled when the lease is lost.
func (l *lease) keep(run *runContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run, l.owner = run, l.claim.Owner
	l.renewer = l.core.newRenewer(l)
	l.renewer.timer.Reset(l.claim.Lease / renewalsPerLease)
}

// resume starts the renewals again, after the claim was lost and granted to the new owner by a
// claim that was sent at that time.
func (l *lease) resume(owner store.Owner, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = owner
	l.lost, l.sure = false, sent.Add(l.margin())
	if l.renewer != nil { // it may have fired just now, for the claim that was lost
		l.core.freeRenewer(l.renewer)
		l.renewer = l.core.newRenewer(l)
		l.renewer.timer.Reset(l.claim.Lease / renewalsPerLease)
	}
}

// keepClaim makes sure that the store does not forget the claim, even in a crash, before the run does
// anything that would outlive it. A renewal is durable, and so is the claim before it. If it fails, the
// claim is not sure, and the run is told.
func (l *lease) keepClaim() {
	if !l.mayBeLost || l.kept.Load() || !l.valid() {
		return
	}
	err := l.insist(0, func(timeout time.Duration) error { return l.requestRenewal(l.claim.Owner, timeout) })
	l.kept.Store(err == nil)
	if err != nil {
		l.lose(err)
	}
}

// insist makes a call of the owner, again and again if it must, for as long as a run tries to record
// its answer. The call sends a value of size bytes.
func (l *lease) insist(size int, call func(timeout time.Duration) error) error {
	start := time.Now()
	for n := 1; ; n++ {
		err := call(l.haste(n, time.Since(start), size))
		if errors.Is(err, store.ErrNotOwner) {
			l.lose(err) // now, and not when the next renewal finds out
		}
		if err == nil || errors.Is(err, store.ErrNotOwner) || errors.Is(err, store.ErrTooLarge) {
			return err
		}
		pause := backoff(n)
		if time.Since(start)+pause >= patience || !l.core.work.pause(pause) {
			return err
		}
	}
}

// outliveRun says that the run is over. A renewal that is refused from now on may have been
// refused because the run is settled already, by a call whose reply was lost.
func (l *lease) outliveRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runOver = true
}

// forgetRun lets go of the run's memory, which the lease may have to outlive.
func (l *lease) forgetRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run = nil
}

// end stops the renewals and reports whether this call was the first to do so. The result
// of a renewal under way no longer matters.
func (l *lease) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.ended = true
	if l.renewer != nil {
		l.core.freeRenewer(l.renewer)
		l.renewer = nil
	}
	return true
}

// valid reports whether the claim is surely ours, and not given up.
func (l *lease) valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && !l.ended && time.Now().Before(l.sure)
}

// undisputed reports whether nobody else can have the claim yet, although it may have been
// given up.
func (l *lease) undisputed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lost && time.Now().Before(l.sure)
}

// wasKept reports whether the claim was not lost while the run lasted, and nobody else can have it yet
// unless it was given up.
func (l *lease) wasKept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.lostInRun && time.Now().Before(l.sure)
}

func (l *lease) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// lose tells the run, once, that its claim is not sure any more.
func (l *lease) lose(err error) {
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
	l.observe(event.Event{Kind: event.LeaseLost, Err: err})
}

// renew runs when the timer fires. It tries a renewal that failed again soon, with growing
// pauses, and does not wait for the next regular time: at a third of the lease, two
// failures in a row would lose it. Near the end of the lease the pauses shrink again, so
// that the last of them does not outlast a lease whose store is back. When the lease is
// lost the run is told. Renewing then goes on unless another has taken over: as long as
// the run lasts it should not be overtaken.
func (l *lease) renew(r *renewer) {
	if !l.core.work.enter() {
		return // shut down while the run goes on: its lease is left to lapse
	}
	defer l.core.work.leave()

	sent := time.Now()
	err := errStoreTimeout
	if owner, timeout := l.nextRenewal(sent); timeout > 0 {
		err = l.requestRenewal(owner, timeout)
	}

	l.mu.Lock()
	if l.renewer != r {
		l.mu.Unlock()
		return
	}
	lost := false
	next := l.claim.Lease / renewalsPerLease
	switch {
	case err == nil:
		l.failures = 0
		if !l.lost {
			l.sure = sent.Add(l.margin())
		}
		next -= time.Since(sent)
	case errors.Is(err, store.ErrNotOwner):
		lost = true
		next = -1
	default:
		l.failures++
		next = min(backoff(l.failures), next)
		if left := time.Until(l.sure); left > 0 {
			next = min(next, left/2)
		} else {
			lost = true
		}
	}
	if next >= 0 {
		r.timer.Reset(max(next, time.Millisecond))
	}
	l.mu.Unlock()

	if lost {
		l.lose(err)
	}
}

// nextRenewal returns who renews, and how long that may take. The timeout is not positive when
// it is too late: a run whose renewals fail must be told at the moment its claim is no longer
// sure, even while a call hangs. A first renewal that comes late, because the process was
// paused, may still find the claim in place.
func (l *lease) nextRenewal(now time.Time) (owner store.Owner, timeout time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.sure.Sub(now)
	if l.lost || left <= 0 && l.failures == 0 {
		return l.owner, l.timeout()
	}
	return l.owner, min(l.timeout(), left)
}

// timeout bounds a single store call. It is at most a third of the lease, so that a call
// that hangs leaves time for another within the lease.
func (l *lease) timeout() time.Duration {
	return min(storeTimeout, l.claim.Lease/renewalsPerLease)
}

// claimTimeout bounds a claim, which may have to read a recorded answer. It is at most a
// third of the lease too, because the lease runs meanwhile.
func (l *lease) claimTimeout() time.Duration {
	return min(storeTimeout+sizeTime(l.set.maxResponseLen), l.claim.Lease/renewalsPerLease)
}

// sendTimeout bounds a call that sends a value of n bytes. It may exceed the lease, which is
// renewed meanwhile.
func (l *lease) sendTimeout(n int) time.Duration { return l.timeout() + sizeTime(int64(n)) }

// haste is timeout for the nth try of a call that somebody waits for, and has waited for so
// long. The first try leaves time for another, because a single broken connection may have
// swallowed it. A value of size bytes is given the time that it takes besides.
func (l *lease) haste(n int, waited time.Duration, size int) time.Duration {
	timeout := min(l.timeout(), patience-waited)
	if n == 1 {
		timeout = min(timeout, patience/2)
	}
	return timeout + sizeTime(int64(size))
}

// A renewer is a timer that fires into the lease it is lent to. Timers are reused:
// making one for each request would be two of its allocations.
type renewer struct {
	timer *time.Timer
	lease *lease
}

func (c *core) newRenewer(l *lease) *renewer {
	if r, ok := c.renewers.Get().(*renewer); ok {
		r.lease = l
		return r
	}
	r := &renewer{lease: l}
	r.timer = time.AfterFunc(math.MaxInt64, func() { r.lease.renew(r) })
	return r
}

// freeRenewer stops the timer. A renewer that has fired already may still be about to call
// its lease, and is left to the garbage collector.
func (c *core) freeRenewer(r *renewer) {
	if r.timer.Stop() {
		r.lease = nil
		c.renewers.Put(r)
	}
}
