package storetest

import (
	"time"

	"example.com/idempotency/store"
)

var completeCases = []testCase{
	// From now on every request gets this answer, and so does a resent claim of the owner.
	{"Complete/records the answer", func(e *env) {
		e.completed("answer")
		for _, o := range []store.Owner{bob, carol, alice} {
			e.claim(o).answer("answer").notMine(store.Completed, 1).bound().unprotected()
		}
	}},
	// The reply to a completion was lost, and the completion is sent again, perhaps much later.
	// It must not fail, and must not start the TTL anew.
	{"Complete/repeated is success without effect", func(e *env) {
		e.completed("answer")
		e.complete(alice, "answer")
		e.advance(ttl - margin)
		e.complete(alice, "answer")
		e.claim(bob).answer("answer")
		e.advance(2 * margin)
		e.claim(bob).mine(1)
	}},
	{"Complete/by another owner is refused", func(e *env) {
		e.claimed()
		e.refused(store.ErrNotOwner).complete(bob, "bob's")
		e.claim(bob).claimed(1)
		e.complete(alice, "alice's")
		e.claim(bob).answer("alice's")
	}},
	// The effect has happened. A store that refuses its answer because the lease has ended
	// turns it into a second effect.
	{"Complete/after the lease is accepted", func(e *env) {
		e.claimed()
		e.advance(retention - 10*time.Minute)
		e.complete(alice, "answer")
		e.claim(bob).answer("answer")
	}},
	// Two runs have happened. Only the answer of the run that holds the claim counts.
	// Otherwise two clients would get two answers.
	{"Complete/after a takeover is refused", func(e *env) {
		e.takenOver()
		e.refused(store.ErrNotOwner).complete(alice, "alice's")
		e.claim(carol).claimed(2)
		e.complete(bob, "bob's")
		e.refused(store.ErrNotOwner).complete(alice, "alice's")
		e.claim(carol).answer("bob's")
	}},
	// The owner did not know the outcome, and then found out.
	{"Complete/after Hold is accepted", func(e *env) {
		e.held()
		e.refused(store.ErrNotOwner).complete(bob, "bob's")
		e.complete(alice, "answer")
		e.claim(bob).answer("answer")
	}},
	// Nobody has run since, so the late answer of the only run counts.
	{"Complete/after a lapsed claim became held is accepted", func(e *env) {
		e.lapsed(holding)
		e.claim(bob).held(1)
		e.complete(alice, "answer")
		e.claim(bob).answer("answer")
	}},
	// The owner has said that it did nothing. Another may run at any moment.
	{"Complete/after Release is refused", func(e *env) {
		e.released()
		e.refused(store.ErrNotOwner).complete(alice, "answer")
		e.claim(bob).mine(2)
	}},
	// A record that has expired, or that the store has lost, must not come back with an
	// answer and without the fingerprint that it is bound to.
	{"Complete/of an absent record is refused", func(e *env) {
		e.refused(store.ErrNotOwner).complete(alice, "answer")
		e.claim(bob).mine(1)
	}},
	// There is one answer until its TTL ends, no matter what a confused or late caller sends.
	{"Completed/does not change", func(e *env) {
		e.completed("answer")
		for _, o := range []store.Owner{alice, bob} {
			e.refused(store.ErrNotOwner).renew(o)
			e.claim(carol).answer("answer")
			e.refused(store.ErrNotOwner).release(o)
			e.claim(carol).answer("answer")
			e.refused(store.ErrNotOwner).hold(o)
			e.claim(carol).answer("answer")
		}
		e.refused(store.ErrNotOwner).complete(bob, "another answer")
		e.claim(carol).answer("answer")
		e.complete(alice, "another answer")
		e.claim(carol).answer("answer")
		e.claim(carol, holding).answer("answer").ttl(ttl)
	}},
}
