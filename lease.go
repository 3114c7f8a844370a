package idempotency

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"sync"
	"time"
)

func newOwner() (o Owner) {
	_, _ = rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}

// renewalsPerLease leaves room for a failed renewal and its retries within a lease.
const renewalsPerLease = 3

// A lease is one request's claim on a record, from the first call of the store to the
// last. Between begin and end it is kept alive by a timer, so that a short run costs no
// goroutine.
type lease struct {
	core   *core
	set    *settings
	id     Key
	key    string // id as the store sees it
	claim  Claim
	client context.Context // of the request: its values count, not its cancellation
	record Record          // as claimed; immutable after acquire
	// uncertain says that a claim was sent whose reply never came.
	uncertain bool
	// met says that the store has told of a record of another owner.
	met bool

	mu       sync.Mutex
	renewer  *renewer
	run      *runContext
	sure     time.Time // until then the claim is ours by the local clock
	failures int
	lost     bool
	settling bool // the run is over, and nobody is left to be told of a loss
	ended    bool
	// unsettled says that the run has ended and could not be settled so far.
	unsettled bool
}

// init prepares a lease for its claim. The owner is made here, once: a claim that is
// sent again must be recognised as the same.
func (l *lease) init(client context.Context, g *Guard, id Key, fp Fingerprint) {
	l.core, l.set, l.id, l.key, l.client = g.core, &g.set, id, id.storeKey(), client
	l.claim = Claim{
		Owner:       newOwner(),
		Fingerprint: fp,
		Lease:       g.set.lease,
		Retention:   g.set.retentionOrDefault(),
		Hold:        g.set.recovery == Hold,
	}
}

// acquire asks the store for the claim. It can be called again, as the same owner, until
// the claim is granted.
func (l *lease) acquire(watch bool) (Record, error) {
	claim := l.claim
	claim.Watch = watch
	sent := time.Now()
	rec, err := l.core.claim(l.client, l.timeout(), l.key, claim)
	if err != nil {
		l.uncertain = l.uncertain || !definite(err) && !errors.Is(err, errStoreStuck)
		l.observe(Event{Kind: EventStoreError, Op: "claim", Duration: time.Since(sent), Err: err})
		return Record{}, err
	}
	if rec.Mine {
		l.record = rec
		l.sure = sent.Add(l.margin())
	}
	return rec, nil
}

// definite reports whether an error of Claim says that the claim was not granted.
func definite(err error) bool {
	return errors.Is(err, ErrStoreFull) || errors.Is(err, ErrCorrupt)
}

// margin is how long after sending a claim or a renewal the lease is surely ours: a
// tenth is left for clocks that run at different rates and for the way to the store.
func (l *lease) margin() time.Duration { return l.claim.Lease - l.claim.Lease/10 }

// keep starts the renewals. The context of the run is cancelled when the lease is lost.
func (l *lease) keep(run *runContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run = run
	l.renewer = l.core.newRenewer(l)
	l.renewer.timer.Reset(l.claim.Lease / renewalsPerLease)
}

// resume starts the renewals again, after the claim was lost and found by a claim that
// was sent at that time.
func (l *lease) resume(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, l.sure = false, sent.Add(l.margin())
	if l.renewer != nil { // it may have fired just now: what it finds out is of the past
		l.core.freeRenewer(l.renewer)
		l.renewer = l.core.newRenewer(l)
		l.renewer.timer.Reset(l.claim.Lease / renewalsPerLease)
	}
}

// end stops the renewals, and tells whether it was the first to do so. What a renewal
// under way reports no longer matters.
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
	if l.unsettled {
		l.core.unsettled.remove(l)
	}
	return true
}

// fail notes that the store has failed to settle the run.
func (l *lease) fail() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended && !l.unsettled {
		l.unsettled = true
		l.core.unsettled.add(l)
	}
}

// forgetRun is called when the run is over and its lease is not.
func (l *lease) forgetRun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run = nil
}

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

func (l *lease) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// settles says that the run is over. A renewal that is refused from now on may have been
// refused because the run is settled already, by a call whose reply was lost.
func (l *lease) settles() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settling = true
}

// lose tells the run, once, that its claim is not sure any more.
func (l *lease) lose(err error) {
	l.mu.Lock()
	tell := !l.lost && !l.settling && !l.ended
	l.lost = true
	run := l.run
	l.mu.Unlock()
	if !tell {
		return
	}
	if run != nil {
		run.cancel(ErrLeaseLost)
	}
	l.observe(Event{Kind: EventLeaseLost, Err: err})
}

// renew runs when the timer fires. A renewal that fails is tried again soon, with
// growing pauses, and not at the next regular time: at a third of the lease, two
// failures in a row would lose it. The pauses shrink again when the lease draws to its
// end: otherwise the last of them would outlast it although the store is back. When the
// lease is lost the run is told, and renewing goes on unless another has taken over: as
// long as the run lasts it should not be overtaken.
func (l *lease) renew(r *renewer) {
	if !l.core.work.enter() {
		return // shut down with this run still going: its lease is left to lapse
	}
	defer l.core.work.leave()

	sent := time.Now()
	err := errStoreTimeout
	if timeout := l.renewalTimeout(sent); timeout > 0 {
		err = l.call("renew", timeout, func(ctx context.Context) error {
			return l.core.store.Renew(ctx, l.key, l.claim.Owner)
		})
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
	case errors.Is(err, ErrNotOwner):
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

// renewalTimeout bounds a renewal, and is not positive when it is too late for one: a run
// whose renewals fail is to be told at the moment its claim is no longer sure, and not
// when the call that it hangs in is over. A first renewal that comes late, because the
// process was paused, may still find the claim in place.
func (l *lease) renewalTimeout(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.sure.Sub(now)
	if l.lost || left <= 0 && l.failures == 0 {
		return l.timeout()
	}
	return min(l.timeout(), left)
}

// call makes a store call for this lease and reports its failure, unless it is one of
// the answers that every store may give.
func (l *lease) call(op string, timeout time.Duration, f func(context.Context) error) error {
	start := time.Now()
	_, err := do(context.WithoutCancel(l.client), l.core, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, f(ctx)
	})
	if err != nil && !errors.Is(err, ErrNotOwner) {
		l.observe(Event{Kind: EventStoreError, Op: op, Duration: time.Since(start), Err: err})
	}
	return err
}

// timeout bounds a single store call. It is a third of the lease at most, so that a
// call that hangs leaves time for another within the lease.
func (l *lease) timeout() time.Duration {
	return min(storeTimeout, l.claim.Lease/renewalsPerLease)
}

// haste is timeout for the nth try of a call that somebody waits for. The first leaves
// time for another: what has swallowed it may be a single connection.
func (l *lease) haste(n int) time.Duration {
	if n == 1 {
		return min(l.timeout(), patience/2)
	}
	return l.timeout()
}

func (l *lease) observe(e Event) {
	e.KeyHash = keyHash(l.key)
	if e.Attempt == 0 {
		e.Attempt = l.record.Attempt
	}
	l.set.observe(context.WithoutCancel(l.client), e)
}

// backoff is the pause after the nth failure in a row: short at first, because most
// failures are a lost connection, and never more than two seconds.
func backoff(n int) time.Duration {
	return min(20*time.Millisecond<<min(n-1, 10), 2*time.Second)
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

// freeRenewer stops the timer. One that has fired already may still be about to call
// its lease, and is left to the garbage collector.
func (c *core) freeRenewer(r *renewer) {
	if r.timer.Stop() {
		r.lease = nil
		c.renewers.Put(r)
	}
}
