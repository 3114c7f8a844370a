package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// A Lease is one request's claim on a record: how it is granted, kept alive and lost.
// A timer renews it, so a short run costs no goroutine.
type Lease struct {
	Access
	claim     store.Claim
	steps     map[string][]byte // of earlier attempts, as the claim was granted
	mayBeLost bool              // as the store has said of the claim
	blank     bool              // nothing was done by earlier attempts, as the store has said of the claim
	kept      atomic.Bool       // the store has acknowledged a later call, so it will not forget the claim
	told      atomic.Bool       // observers or the log have got an event, and may have kept its context
	note      [note.MaxLen]byte // the memory of the claim's note
	tags      [2]store.Tag      // the memory of the claim's tags
	sums      digest.Checksums

	mu       sync.Mutex
	renewer  *renewer
	owner    store.Owner // under which it is renewed: the claim's, or that of a claim made later
	run      stopper
	sure     time.Time // until then the claim is ours by the local clock
	failures int       // of renewals, in a row
	lost     bool
	runOver  bool // a loss concerns nobody any more
	// lostInRun says that the claim was lost before the run was over.
	lostInRun bool
	ended     bool
}

// An Identity is what a request is compared by: its fingerprint, and checksums of its parts.
type Identity struct {
	Fingerprint store.Fingerprint
	Sums        digest.Checksums
}

// A stopper is what a lease knows of its run.
type stopper interface{ cancel(cause error) }

// NewLease returns the lease of a request that is about to claim its key, now. a says whose it is.
func (e *Engine) NewLease(now time.Time, a Access, id Identity) *Lease {
	l, ok := e.core.leases.Get().(*Lease)
	if !ok {
		l = new(Lease)
	}
	l.init(now, e, a, id)
	return l
}

// Free takes back the lease of a request that was answered without it. Nobody may have it
// still: another store may have kept the claim, and an observer the context of an event.
func (l *Lease) Free() {
	if c := l.core; c.local && l.Attempt == 0 && !l.told.Load() {
		*l = Lease{}
		c.leases.Put(l)
	}
}

// init prepares a lease for its claim, which is made now. The owner is made here, once: a claim that is
// sent again must be recognised as the same.
func (l *Lease) init(now time.Time, e *Engine, a Access, id Identity) {
	l.Access, l.sums = a, id.Sums
	l.core, l.rules = e.core, e.rules
	n := note.Note{Started: now, Sums: id.Sums, Derivation: l.rules.Derivation.Digest}
	if l.rules.Trace != nil {
		n.Trace = l.rules.Trace(a.Client)
	}
	l.claim = store.Claim{
		Note:        n.AppendTo(l.note[:0]),
		Label:       note.Label(a.Route),
		Owner:       newOwner(),
		Fingerprint: id.Fingerprint,
		Lease:       l.rules.Lease,
		Retention:   l.rules.RetentionOrDefault(),
		Hold:        l.rules.Hold && !l.rules.Transaction,
		HoldEnds:    l.rules.Retention > 0,
		MayBeLost:   l.rules.Transaction && l.rules.MaxAttempts == 0, // attempts that count are recorded
		Tenant:      a.ID.Tenant(),
	}
	if l.rules.FindableScope {
		l.findBy(intent.ByScope, a.ID.Scope)
	}
}

// findBy lets the record be found by a reference or a scope, unless that is empty.
func (l *Lease) findBy(what, value string) {
	if n := len(l.claim.Tags); value != "" {
		l.tags[n] = l.rules.Derivation.Tag(what, value)
		l.claim.Tags = l.tags[:n+1]
	}
}

// Refer lets the record be found by a reference, unless that is empty.
func (l *Lease) Refer(reference string) { l.findBy(intent.ByReference, reference) }

// Fingerprint returns what the claim is made with.
func (l *Lease) Fingerprint() store.Fingerprint { return l.claim.Fingerprint }

// KeepKey seals the key into the claim, if the route keeps keys.
func (l *Lease) KeepKey() (err error) {
	l.claim.SealedKey, err = l.rules.Seals.Key(l.ID, l.Name)
	return err
}

// ReportOnce reports a mistake of the program, once for each route: by its label, by its pattern, or by the
// path of the request.
func (l *Lease) ReportOnce(kind event.Kind, err error, pattern, path string) {
	m := report.Mistake{Method: l.Method, Route: cmp.Or(l.Route, pattern), Err: err}
	if l.core.mistakes.IsNew(&m, path) {
		l.Observe(event.Event{Kind: kind, Route: m.Route, Err: m.Err})
	}
}

// Observe reports an event of the operation that the claim is for.
func (l *Lease) Observe(e event.Event) {
	if l.rules.Reporter.Hears(e.Kind) {
		if e.OperationID == "" {
			e.OperationID = l.rules.Derivation.Of(l.ID, l.claim.Fingerprint).ID()
		}
		if e.Attempt == 0 && l.Attempt > 0 { // it is about this run
			n := note.Read(l.claim.Note)
			e.Trace = n.Trace
		}
	}
	l.told.Store(true)
	l.Access.Observe(e)
}

func newOwner() (o store.Owner) {
	_, _ = rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}

// bearWitness notes that an owner has completed the record. A store of this process does not forget it.
func (l *Lease) bearWitness(o store.Owner) {
	if !l.core.local {
		l.core.witnesses.Add(report.Witness{Name: l.Name, Owner: o, Route: l.Route, Began: note.Read(l.claim.Note).Started, TTL: l.rules.TTL})
	}
}

// recordEnds reports whether the record becomes free with time although nobody settles it.
func (l *Lease) recordEnds() bool { return !l.claim.Hold || l.claim.HoldEnds }

// acquire asks the store for the claim, now, and reads the record. It can be called again, as the
// same owner, until the claim is granted.
//
// A store that is slow fails claims for lack of time. They must be given back, and their clients ask again,
// so there is more to do than before. If all of it went to the store at once, the renewals and the answers of
// the runs in flight would find no connection free, leases would lapse, and the overload would never end. So
// claims are throttled, and ghosts take turns. Under FailOpen, a claim that is turned away would be a run without
// protection, so none is.
func (l *Lease) acquire(rec *store.Record, now time.Time, watch bool) (err error) {
	if !l.core.local && !l.rules.FailOpen {
		var waited bool
		if waited, err = l.core.claims.Enter(l.Client.Done(), l.claimTimeout()/2); err != nil {
			*rec = store.Record{}
			l.Observe(event.Event{Kind: event.StoreError, Op: "claim", Duration: time.Since(now), Err: err})
			return err
		}
		if waited {
			now = time.Now()
		}
		defer func() { l.core.claims.Leave(now, l.timeout()/2, err == nil || isAnswer(err)) }()
	}
	claim := l.claim
	claim.Watch = watch
	err = l.requestClaim(rec, now, &claim, l.claimTimeout())
	if err == nil && rec.Mine {
		l.Attempt, l.steps, l.mayBeLost, l.blank = rec.Attempt, rec.Steps, rec.MayBeLost, rec.Blank
		l.sure = now.Add(l.margin())
	}
	return err
}

// undone is what the store is told about a claim under which nothing was done. All that the
// record is for from then on is its owner, whose claim must not be granted if it arrives
// again. Under Rerun a claim that comes later than that blocks the key for a lease, but under
// Hold it would hold the key.
func (l *Lease) undone() store.Release {
	keep := MinRetentionInLeases * l.claim.Lease
	if l.claim.Hold {
		keep = max(keep, lateClaims)
	}
	return store.Release{Undone: true, Keep: keep}
}

// unused is what the store is told about a claim under which no run has begun.
func (l *Lease) unused() store.Release {
	rel := l.undone()
	rel.Unused = true
	return rel
}

// lateClaims is how long a claim may take to arrive whose reply was lost, or that the client
// library has sent twice: longer than a system keeps sending what its process has given up.
const lateClaims = 15 * time.Minute

// Differs returns the parts in which the request differs from that of the record's last run, as
// far as their checksums tell.
func (l *Lease) Differs(rec *store.Record) event.RequestParts { return note.Differs(rec, &l.sums) }

// ReportHeld reports, once for each run, that nobody may run until the key is resolved.
func (l *Lease) ReportHeld(rec *store.Record, cause event.Cause) {
	if l.core.reports.IsNew(report.Of(event.Held, l.Name, rec)) {
		l.Observe(event.Event{Kind: event.Held, Attempt: rec.Attempt, Held: true, Cause: cause, Age: rec.Age, Trace: note.Last(rec.Notes).Trace})
	}
}

// ReportFound reports, once for each run, that a record is held which somebody has found so.
func (l *Lease) ReportFound(rec *store.Record) { l.ReportHeld(rec, note.FoundFor(rec)) }

// holdNow holds the key of the claim, and notes why.
func (l *Lease) holdNow(o store.Owner, why note.Hold, timeout time.Duration) error {
	n := note.Read(l.claim.Note)
	n.Hold, n.Hold.At = why, time.Now()
	return l.hold(o, n.AppendTo(nil), timeout)
}

// reportTakeover reports, once for each run, that the claim was granted because another's lease
// had ended.
func (l *Lease) reportTakeover(rec *store.Record) {
	if !l.core.reports.IsNew(report.Of(event.Takeover, l.Name, rec)) {
		return
	}
	e := event.Event{Kind: event.Takeover, Attempt: rec.Attempt, Runs: note.Runs(rec)}
	if n := len(e.Runs); n > 1 {
		e.Trace = e.Runs[n-2].Trace
	}
	l.Observe(e)
}

// GiveUp implements [inflight.Debt]: it leaves a run that could not be settled to its lease. The client
// has its answer all the same.
func (l *Lease) GiveUp(err error) {
	if l.end() {
		l.Observe(event.Event{Kind: event.RecordingLost, Err: err})
	}
}

// rollBack rolls a transaction back. Whatever the store does, it returns in time. left is what becomes of the run: unless it has
// done nothing, its key is not to be free before it is settled.
func (l *Lease) rollBack(ctx context.Context, tx store.Transaction, left rules.Left) error {
	_, err := bounded(ctx, l.core, "rollback", l.timeout(), func(ctx context.Context) (struct{}, error) {
		if claim, ok := tx.(store.ClaimTransaction); ok && left != rules.Undone {
			claim.KeepClaim(ctx)
		}
		return struct{}{}, tx.Rollback(ctx)
	})
	if err != nil && !errors.Is(err, store.ErrCommittedAlone) {
		l.Observe(event.Event{Kind: event.StoreError, Op: "rollback", Err: err})
	}
	return err
}
