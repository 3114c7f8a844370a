package storetest

import (
	"time"

	"example.com/idempotency/store"
)

func completeCases() []testCase {
	return []testCase{
		{"Complete/records the answer", completeRecords},
		{"Complete/repeated is success without effect", completeRepeated},
		{"Complete/by another owner is refused", completeOther},
		{"Complete/after the lease is accepted", completeLapsed},
		{"Complete/after a takeover is refused", completeTakenOver},
		{"Complete/after Hold is accepted", completeHeld},
		{"Complete/after a lapsed claim became held is accepted", completeLapsedHeld},
		{"Complete/after Release is refused", completeReleased},
		{"Complete/of an absent record is refused", completeAbsent},
		{"Completed/does not change", completedImmutable},
	}
}

// complete completes the key as o.
func (e *env) complete(o store.Owner, answer string) error {
	return e.store.Complete(e.ctx, key, o, completion(answer))
}

// From now on every request gets this answer, and so does a resent claim of the owner.
func completeRecords(e *env) {
	e.claimed()
	e.ok("Complete", e.complete(alice, "answer"))
	for _, o := range []store.Owner{bob, carol, alice} {
		r := e.claim(key, o)
		e.answer(r, "answer")
		e.bound(r)
		if r.Attempt != 1 || r.Lease != 0 {
			e.t.Errorf("record: got %s, want attempt 1 and no lease", show(r))
		}
	}
}

// The reply to a completion was lost, and the completion is sent again, perhaps much later.
// It must not fail, and must not start the TTL anew.
func completeRepeated(e *env) {
	e.completed("answer")
	e.ok("repeated Complete", e.complete(alice, "answer"))
	e.advance(ttl - margin)
	e.ok("repeated Complete", e.complete(alice, "answer"))
	e.answer(e.claim(key, bob), "answer")
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 1)
}

func completeOther(e *env) {
	e.claimed()
	e.refused("Complete by another owner", e.complete(bob, "bob's"), store.ErrNotOwner)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.ok("Complete", e.complete(alice, "alice's"))
	e.answer(e.claim(key, bob), "alice's")
}

// The effect has happened. A store that refuses its answer because the lease has ended
// turns it into a second effect.
func completeLapsed(e *env) {
	e.claimed()
	e.advance(retention - time.Minute)
	e.ok("Complete after the lease", e.complete(alice, "answer"))
	e.answer(e.claim(key, bob), "answer")
}

// Two runs have happened. Only the answer of the run that holds the claim counts.
// Otherwise two clients would get two answers.
func completeTakenOver(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.refused("Complete after a takeover", e.complete(alice, "alice's"), store.ErrNotOwner)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
	e.ok("Complete", e.complete(bob, "bob's"))
	e.refused("Complete after another's", e.complete(alice, "alice's"), store.ErrNotOwner)
	e.answer(e.claim(key, carol), "bob's")
}

// The owner did not know the outcome, and then found out.
func completeHeld(e *env) {
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.refused("Complete by another owner", e.complete(bob, "bob's"), store.ErrNotOwner)
	e.ok("Complete after Hold", e.complete(alice, "answer"))
	e.answer(e.claim(key, bob), "answer")
}

// Nobody has run since, so the late answer of the only run counts.
func completeLapsedHeld(e *env) {
	e.claimed(holding)
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.ok("Complete", e.complete(alice, "answer"))
	e.answer(e.claim(key, bob), "answer")
}

// The owner has said that it did nothing. Another may run at any moment.
func completeReleased(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.refused("Complete after Release", e.complete(alice, "answer"), store.ErrNotOwner)
	e.mine(e.claim(key, bob), 2)
}

// A record that has expired, or that the store has lost, must not come back with an
// answer and without the fingerprint that it is bound to.
func completeAbsent(e *env) {
	e.refused("Complete of an absent record", e.complete(alice, "answer"), store.ErrNotOwner)
	e.mine(e.claim(key, bob), 1)
}

// There is one answer until its TTL ends, no matter what a confused or late caller sends.
func completedImmutable(e *env) {
	e.completed("answer")
	for _, o := range []store.Owner{alice, bob} {
		e.refused("Renew of a completed record", e.store.Renew(e.ctx, key, o), store.ErrNotOwner)
		e.answer(e.claim(key, carol), "answer")
		e.refused("Release of a completed record", e.release(o), store.ErrNotOwner)
		e.answer(e.claim(key, carol), "answer")
		e.refused("Hold of a completed record", e.store.Hold(e.ctx, key, o), store.ErrNotOwner)
		e.answer(e.claim(key, carol), "answer")
	}
	e.refused("Complete by another owner", e.complete(bob, "another answer"), store.ErrNotOwner)
	e.answer(e.claim(key, carol), "answer")
	e.ok("Complete with another answer", e.complete(alice, "another answer"))
	e.answer(e.claim(key, carol), "answer")
	r := e.claim(key, carol, holding)
	e.answer(r, "answer")
	e.near("TTL", r.TTL, ttl)
}
