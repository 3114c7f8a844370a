package storetest

import (
	"time"

	"example.com/idempotency/store"
)

var leaseCases = []testCase{
	// Taking over a moment early means two runs at once.
	{"Lease/protects until its end", func(e *env) {
		e.claimed()
		e.advance(lease - margin)
		r := e.claim(bob).claimed(1)
		if r.Lease <= 0 || r.Lease > margin {
			e.t.Errorf("Lease: got %v, want at most %v", r.Lease, margin)
		}
	}},
	// The process of the first run died. The client's retry must get through when the lease
	// ends, long before the retention ends, and must learn that it is the second attempt.
	{"Lease/a lapsed claim is taken over", func(e *env) {
		e.lapsed()
		e.claim(bob).mine(2).bound().lease(lease).ttl(retention).age(0)
		e.claim(carol).claimed(2)
		e.claim(alice).claimed(2)
	}},
	// Lease and retention belong to the claim. When a deploy changes them, the records that are
	// taken over must not keep the old ones.
	{"Lease/each claim brings its own durations", func(e *env) {
		e.lapsed()
		longer := func(c *store.Claim) { c.Lease, c.Retention = 2*lease, 2*retention }
		e.claim(bob, longer).mine(2).lease(2 * lease).ttl(2 * retention)
		e.advance(10*time.Minute - margin)
		e.claim(carol).claimed(2)
		e.renew(bob)
		e.advance(10*time.Minute - margin)
		e.claim(carol).claimed(2)
		e.release(bob)
		e.advance(2*retention - margin)
		e.claim(carol).mine(3)
	}},
	// The attempt can serve as a fencing number. It must rise with each claim of the record,
	// however the last claim ended, and the record must stay the same record.
	{"Lease/attempt rises over lapse and release", func(e *env) {
		e.claimed()
		for attempt := 2; attempt < 8; attempt += 2 {
			e.advance(lease + margin)
			e.claim(bob).mine(attempt).bound()
			e.release(bob)
			e.claim(carol).mine(attempt + 1).bound()
		}
	}},
	// The run may have had its effect before its process died. A claim that says Hold forbids a
	// second run in that case, no matter which request finds it.
	{"Lease/a lapsed claim that says Hold becomes held", func(e *env) {
		e.claimed(holding)
		e.claim(bob).claimed(1)
		e.advance(lease + margin)
		e.claim(bob).held(1).bound().unprotected()
		e.claim(carol).held(1)
	}},
	// While a route is switched to Hold, there are claims of both kinds. The stricter one wins,
	// and stays.
	{"Lease/a lapsed claim found by a Hold becomes held", func(e *env) {
		e.claimed()
		e.claim(bob, holding).claimed(1)
		e.advance(lease + margin)
		e.claim(bob, holding).held(1)
		e.claim(carol).held(1)
	}},
	// A run that takes longer than its lease renews it, as often as it needs.
	{"Renew/extends the lease", func(e *env) {
		e.claimed()
		for range 5 {
			e.advance(lease - margin)
			e.renew(alice)
			e.claim(bob).claimed(1).lease(lease).ttl(retention).age(0)
		}
		e.advance(lease + margin)
		e.claim(bob).mine(2)
	}},
	// A run may even take longer than the retention.
	{"Renew/extends the retention", func(e *env) {
		e.claimed()
		for range int(2 * retention / lease) {
			e.advance(lease - margin)
			e.renew(alice)
		}
		e.claim(bob).claimed(1)
		e.complete(alice, "answer")
	}},
	// A process that was paused, or that had lost its store, comes back late. As long as nobody
	// took over, stopping its run would help nobody.
	{"Renew/revives a lapsed claim", func(e *env) {
		e.lapsed()
		e.renew(alice)
		e.claim(bob).claimed(1).lease(lease)
	}},
	// Another owner must not prolong the claim. Otherwise a dead run would block its key for as
	// long as others ask for it.
	{"Renew/by another owner is refused", func(e *env) {
		e.claimed()
		e.advance(lease - margin)
		e.refused(store.ErrNotOwner).renew(bob)
		e.advance(2 * margin)
		e.claim(carol).mine(2)
	}},
	// This refusal is how a paused run learns that it has to stop.
	{"Renew/after a takeover is refused", func(e *env) {
		e.takenOver()
		e.refused(store.ErrNotOwner).renew(alice)
		e.renew(bob)
	}},
	{"Renew/without a claim is refused", func(e *env) {
		e.refused(store.ErrNotOwner).renew(alice)
		e.released()
		e.refused(store.ErrNotOwner).renew(alice)
		e.claim(bob).mine(2)
	}},
}
