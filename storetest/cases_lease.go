package storetest

import (
	"time"

	"example.com/idempotency/store"
)

func leaseCases() []testCase {
	return []testCase{
		{"Lease/protects until its end", leaseProtects},
		{"Lease/a lapsed claim is taken over", leaseTakeover},
		{"Lease/each claim brings its own durations", leaseOwnDurations},
		{"Lease/attempt rises over lapse and release", leaseAttempt},
		{"Lease/a lapsed claim that says Hold becomes held", leaseHoldByRecord},
		{"Lease/a lapsed claim found by a Hold becomes held", leaseHoldByFinder},
		{"Renew/extends the lease", renewLease},
		{"Renew/extends the retention", renewRetention},
		{"Renew/revives a lapsed claim", renewLapsed},
		{"Renew/by another owner is refused", renewOther},
		{"Renew/after a takeover is refused", renewTakenOver},
		{"Renew/without a claim is refused", renewNothing},
	}
}

// Taking over a moment early means two runs at once.
func leaseProtects(e *env) {
	e.claimed()
	e.advance(lease - margin)
	r := e.claim(key, bob)
	e.notMine(r, store.Claimed, 1)
	if r.Lease <= 0 || r.Lease > margin {
		e.t.Errorf("Lease: got %v, want at most %v", r.Lease, margin)
	}
}

// The process of the first run died. The client's retry must get through when the lease
// ends, long before the retention ends, and must learn that it is the second attempt.
func leaseTakeover(e *env) {
	e.claimed()
	e.advance(lease + margin)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.bound(r)
	e.near("Lease", r.Lease, lease)
	e.near("TTL", r.TTL, retention)
	e.near("Age", r.Age, 0)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
	e.notMine(e.claim(key, alice), store.Claimed, 2)
}

// Lease and retention belong to the claim. When a deploy changes them, the records that are
// taken over must not keep the old ones.
func leaseOwnDurations(e *env) {
	e.claimed()
	e.advance(lease + margin)
	longer := func(c *store.Claim) { c.Lease, c.Retention = 2*lease, 2*retention }
	r := e.claim(key, bob, longer)
	e.mine(r, 2)
	e.near("Lease", r.Lease, 2*lease)
	e.near("TTL", r.TTL, 2*retention)
	e.advance(time.Minute - margin)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
	e.ok("Renew", e.store.Renew(e.ctx, key, bob))
	e.advance(time.Minute - margin)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
	e.ok("Release", e.release(bob))
	e.advance(2*retention - margin)
	e.mine(e.claim(key, carol), 3)
}

// The attempt can serve as a fencing number. It must rise with each claim of the record,
// however the last claim ended, and the record must stay the same record.
func leaseAttempt(e *env) {
	e.claimed()
	for attempt := 2; attempt < 8; attempt += 2 {
		e.advance(lease + margin)
		r := e.claim(key, bob)
		e.mine(r, attempt)
		e.bound(r)
		e.ok("Release", e.release(bob))
		r = e.claim(key, carol)
		e.mine(r, attempt+1)
		e.bound(r)
	}
}

// The run may have had its effect before its process died. A claim that says Hold forbids a
// second run in that case, no matter which request finds it.
func leaseHoldByRecord(e *env) {
	e.claimed(holding)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.advance(lease + margin)
	r := e.claim(key, bob)
	e.notMine(r, store.Held, 1)
	e.bound(r)
	if r.Lease != 0 {
		e.t.Errorf("Lease: got %v of a held record, want 0", r.Lease)
	}
	e.notMine(e.claim(key, carol), store.Held, 1)
}

// While a route is switched to Hold, there are claims of both kinds. The stricter one wins,
// and stays.
func leaseHoldByFinder(e *env) {
	e.claimed()
	e.notMine(e.claim(key, bob, holding), store.Claimed, 1)
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob, holding), store.Held, 1)
	e.notMine(e.claim(key, carol), store.Held, 1)
}

// A run that takes longer than its lease renews it, as often as it needs.
func renewLease(e *env) {
	e.claimed()
	for range 5 {
		e.advance(lease - margin)
		e.ok("Renew", e.store.Renew(e.ctx, key, alice))
		r := e.claim(key, bob)
		e.notMine(r, store.Claimed, 1)
		e.near("Lease", r.Lease, lease)
		e.near("TTL", r.TTL, retention)
		e.near("Age", r.Age, 0)
	}
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
}

// A run may even take longer than the retention.
func renewRetention(e *env) {
	e.claimed()
	for range int(2 * retention / lease) {
		e.advance(lease - margin)
		e.ok("Renew", e.store.Renew(e.ctx, key, alice))
	}
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion("answer")))
}

// A process that was paused, or that had lost its store, comes back late. As long as nobody
// took over, stopping its run would help nobody.
func renewLapsed(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.ok("Renew", e.store.Renew(e.ctx, key, alice))
	r := e.claim(key, bob)
	e.notMine(r, store.Claimed, 1)
	e.near("Lease", r.Lease, lease)
}

// Another owner must not prolong the claim. Otherwise a dead run would block its key for as
// long as others ask for it.
func renewOther(e *env) {
	e.claimed()
	e.advance(lease - margin)
	e.refused("Renew by another owner", e.store.Renew(e.ctx, key, bob), store.ErrNotOwner)
	e.advance(2 * margin)
	e.mine(e.claim(key, carol), 2)
}

// This refusal is how a paused run learns that it has to stop.
func renewTakenOver(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.refused("Renew after a takeover", e.store.Renew(e.ctx, key, alice), store.ErrNotOwner)
	e.ok("Renew", e.store.Renew(e.ctx, key, bob))
}

func renewNothing(e *env) {
	e.refused("Renew of an absent record", e.store.Renew(e.ctx, key, alice), store.ErrNotOwner)
	e.claimed()
	e.ok("Release", e.release(alice))
	e.refused("Renew of a released record", e.store.Renew(e.ctx, key, alice), store.ErrNotOwner)
	e.mine(e.claim(key, bob), 2)
}
