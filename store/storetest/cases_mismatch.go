package storetest

import (
	"example.com/idempotency/store"
)

// A request that reuses a key for another payload must learn that, and must change nothing.
// Otherwise anybody who guesses or reuses a key could keep the record of the honest client
// alive, take its claim, or end it.
var mismatchCases = []testCase{
	// The lease ends when it would have ended anyway, and the owner keeps the claim.
	{"Mismatch/changes nothing in flight", func(e *env) {
		e.claimed()
		e.advance(lease - margin)
		e.mismatch(store.Claimed, 1)
		e.renew(alice)
		e.advance(lease - margin)
		e.mismatch(store.Claimed, 1)
		e.advance(2 * margin)
		e.claim(bob).mine(2)
	}},
	{"Mismatch/does not take over a lapsed claim", func(e *env) {
		e.lapsed()
		e.claim(carol, mismatching).claimed(1).bound().unprotected()
		e.claim(bob).mine(2).bound()
	}},
	{"Mismatch/does not turn a lapsed claim into a held one", func(e *env) {
		e.lapsed()
		e.claim(carol, mismatching, holding)
		e.claim(bob).mine(2)
	}},
	// The retention ends when it would have ended anyway.
	{"Mismatch/does not get a released key", func(e *env) {
		e.released()
		e.mismatch(store.Released, 1)
		e.advance(retention - margin)
		e.mismatch(store.Released, 1)
		e.advance(2 * margin)
		e.claim(bob).mine(1)
	}},
	{"Mismatch/changes nothing when completed", func(e *env) {
		e.completed("answer")
		e.mismatch(store.Completed, 1)
		e.claim(bob).answer("answer")
		e.advance(ttl - margin)
		e.mismatch(store.Completed, 1)
		e.advance(2 * margin)
		e.claim(bob).mine(1)
	}},
	{"Mismatch/changes nothing when held", func(e *env) {
		e.held(holdEnding)
		e.mismatch(store.Held, 1)
		e.advance(retention - margin)
		e.mismatch(store.Held, 1)
		e.claim(bob).held(1)
		e.advance(2 * margin)
		e.claim(bob).mine(1)
	}},
}
