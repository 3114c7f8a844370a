package storetest

import (
	"fmt"
	"time"

	"example.com/idempotency/store"
)

func expiryCases() []testCase {
	return []testCase{
		{"Expiry/an answer is kept until its TTL ends", expiryTTL},
		{"Expiry/the TTL runs from Complete", expiryFromComplete},
		{"Expiry/a short TTL ends before the retention", expiryShortTTL},
		{"Expiry/reading does not prolong it", expiryReading},
		{"Expiry/a claimed record ends with its retention", expiryClaimed},
		{"Expiry/a released record ends with its retention", expiryReleased},
		{"Expiry/a held record has no end", expiryHeld},
		{"Expiry/a claim that says Hold has no end", expiryHolding},
		{"Expiry/a lapsed claim found by a Hold has no end", expiryHoldByFinder},
		{"Expiry/a claim that says Hold ends once it is released", expiryHoldingReleased},
		{"Expiry/a held record ends with its retention if its claim says so", expiryHoldEnds},
		{"Expiry/many records end at once", expiryMany},
		{"Expiry/a record reports its times", expiryReports},
	}
}

// absent fails the case unless a claim of bob finds nothing and makes a new record.
func (e *env) absent() {
	e.t.Helper()
	r := e.claim(key, bob, mismatching)
	e.mine(r, 1)
	if r.Fingerprint != otherPayload || len(r.Steps) != 0 {
		e.t.Errorf("the new record has the fingerprint or the steps of the one before")
	}
}

// Until the TTL ends there is one answer. After that the key is as good as new.
func expiryTTL(e *env) {
	e.completed("answer")
	e.advance(ttl - margin)
	e.answer(e.claim(key, bob), "answer")
	e.advance(2 * margin)
	e.absent()
}

// A run may take long. The TTL that the client was promised begins when there is an answer
// to replay.
func expiryFromComplete(e *env) {
	e.claimed()
	e.advance(retention - time.Minute)
	e.ok("Complete", e.complete(alice, "answer"))
	r := e.claim(key, bob)
	e.near("TTL", r.TTL, ttl)
	e.advance(ttl - margin)
	e.answer(e.claim(key, bob), "answer")
}

func expiryShortTTL(e *env) {
	e.claimed()
	e.ok("Complete", e.store.Complete(e.ctx, key, alice, store.Completion{Answer: []byte("answer"), TTL: time.Minute}))
	e.near("TTL", e.claim(key, bob).TTL, time.Minute)
	e.advance(time.Minute - margin)
	e.answer(e.claim(key, bob), "answer")
	e.advance(2 * margin)
	e.absent()
}

// A client that asks again and again must not keep its record for ever.
func expiryReading(e *env) {
	e.completed("answer")
	for range 4 {
		e.advance(ttl/4 - time.Second)
		e.answer(e.claim(key, bob), "answer")
	}
	e.advance(6 * time.Second)
	e.absent()
}

// A run that nobody takes over and nobody ends must not block its key for ever. It also has
// no right to a record that is gone.
func expiryClaimed(e *env) {
	e.claimed()
	e.advance(retention - margin)
	e.mismatch(store.Claimed, 1)
	e.advance(2 * margin)
	e.refused("Complete after the retention", e.complete(alice, "answer"), store.ErrNotOwner)
	e.refused("Renew after the retention", e.store.Renew(e.ctx, key, alice), store.ErrNotOwner)
	e.absent()
}

func expiryReleased(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.advance(retention + margin)
	e.absent()
}

// Nobody may run until somebody has looked. Time alone tells nothing about the outcome.
func expiryHeld(e *env) {
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.advance(100 * retention)
	r := e.claim(key, bob)
	e.notMine(r, store.Held, 1)
	e.endless(r)
	e.near("Age", r.Age, 100*retention)
	e.ok("Complete", e.complete(alice, "answer"))
	r = e.claim(key, bob)
	e.near("TTL", r.TTL, ttl)
	e.advance(ttl + margin)
	e.absent()
}

// The process died. Whether anybody asks for the key soon after makes no difference.
func expiryHolding(e *env) {
	e.claimed(holding)
	r := e.claim(key, bob)
	e.notMine(r, store.Claimed, 1)
	e.near("Lease", r.Lease, lease)
	e.endless(r)
	e.advance(100 * retention)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.advance(100 * retention)
	r = e.claim(key, bob)
	e.notMine(r, store.Held, 1)
	e.endless(r)
	e.near("Age", r.Age, 200*retention)
}

func expiryHoldByFinder(e *env) {
	e.claimed()
	e.advance(lease + margin)
	r := e.claim(key, bob, holding, holdEnding) // only the record's own claim can set its end
	e.notMine(r, store.Held, 1)
	e.near("Age", r.Age, lease+margin)
	e.endless(r)
	e.advance(100 * retention)
	e.notMine(e.claim(key, bob), store.Held, 1)
}

// Once it is known that nothing has happened, the record is one like any other.
func expiryHoldingReleased(e *env) {
	e.claimed(holding)
	e.ok("Release", e.release(alice))
	r := e.claim(key, alice)
	e.notMine(r, store.Released, 1)
	e.near("TTL", r.TTL, retention)
	e.advance(retention + margin)
	e.absent()
}

func expiryHoldEnds(e *env) {
	e.claimed(holdEnding)
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.near("TTL of a held record", e.claim(key, bob).TTL, retention)
	e.advance(retention + margin)
	e.absent()

	other := keyOf("other key")
	e.mine(e.claim(other, alice, holding, holdEnding), 1)
	e.advance(lease + margin)
	r := e.claim(other, bob)
	e.notMine(r, store.Held, 1)
	e.near("TTL of a lapsed claim", r.TTL, retention-lease-margin)
	e.advance(retention - lease)
	e.mine(e.claim(other, bob), 1)
}

// endless fails the case unless the record has no end of its own.
func (e *env) endless(r store.Record) {
	e.t.Helper()
	if r.TTL != store.Forever {
		e.t.Errorf("TTL: got %v of a record that has no end", r.TTL)
	}
}

// A store may remove expired records when it likes, but it must not serve them until then.
func expiryMany(e *env) {
	const n = 1000
	for i := range n {
		key := keyOf(fmt.Sprint(i))
		e.mine(e.claim(key, alice), 1)
		e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion("answer")))
	}
	e.advance(ttl + margin)
	for i := range n {
		e.mine(e.claim(keyOf(fmt.Sprint(i)), bob), 1)
	}
}

// The times of a record come from the store's clock, not from the caller's.
func expiryReports(e *env) {
	e.completed("answer")
	e.advance(20 * time.Minute)
	r := e.claim(key, bob)
	e.near("TTL of a completed record", r.TTL, ttl-20*time.Minute)
	e.near("Age of a completed record", r.Age, 20*time.Minute)

	e.advance(ttl)
	e.mine(e.claim(key, alice), 1)
	e.ok("Release", e.release(alice))
	e.advance(time.Minute)
	r = e.claim(key, carol, mismatching)
	e.notMine(r, store.Released, 1)
	e.near("TTL of a released record", r.TTL, retention-time.Minute)
	e.near("Age of a released record", r.Age, time.Minute)
}
