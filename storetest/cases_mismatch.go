package storetest

import (
	"example.com/idempotency/store"
)

// A request that reuses a key for another payload must learn that, and must change nothing.
// Otherwise anybody who guesses or reuses a key could keep the record of the honest client
// alive, take its claim, or end it.
func mismatchCases() []testCase {
	return []testCase{
		{"Mismatch/changes nothing in flight", mismatchClaimed},
		{"Mismatch/does not take over a lapsed claim", mismatchLapsed},
		{"Mismatch/does not turn a lapsed claim into a held one", mismatchLapsedHolding},
		{"Mismatch/does not get a released key", mismatchReleased},
		{"Mismatch/changes nothing when completed", mismatchCompleted},
		{"Mismatch/changes nothing when held", mismatchHeld},
	}
}

// mismatch claims the key for another payload. It fails the case unless the record comes
// back unchanged.
func (e *env) mismatch(s store.State, attempt int, edits ...func(*store.Claim)) {
	e.t.Helper()
	r := e.claim(key, carol, append(edits, mismatching)...)
	e.notMine(r, s, attempt)
	e.bound(r)
}

// The lease ends when it would have ended anyway, and the owner keeps the claim.
func mismatchClaimed(e *env) {
	e.claimed()
	e.advance(lease - margin)
	e.mismatch(store.Claimed, 1)
	e.ok("Renew", e.store.Renew(e.ctx, key, alice))
	e.advance(lease - margin)
	e.mismatch(store.Claimed, 1)
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 2)
}

func mismatchLapsed(e *env) {
	e.claimed()
	e.advance(lease + margin)
	r := e.claim(key, carol, mismatching)
	e.notMine(r, store.Claimed, 1)
	e.bound(r)
	if r.Lease > 0 {
		e.t.Errorf("Lease: got %v of a lapsed claim", r.Lease)
	}
	r = e.claim(key, bob)
	e.mine(r, 2)
	e.bound(r)
}

func mismatchLapsedHolding(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.claim(key, carol, mismatching, holding)
	e.mine(e.claim(key, bob), 2)
}

// The retention ends when it would have ended anyway.
func mismatchReleased(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.mismatch(store.Released, 1)
	e.advance(retention - margin)
	e.mismatch(store.Released, 1)
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 1)
}

func mismatchCompleted(e *env) {
	e.completed("answer")
	e.mismatch(store.Completed, 1)
	e.answer(e.claim(key, bob), "answer")
	e.advance(ttl - margin)
	e.mismatch(store.Completed, 1)
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 1)
}

func mismatchHeld(e *env) {
	e.claimed(holdEnding)
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.mismatch(store.Held, 1)
	e.advance(retention - margin)
	e.mismatch(store.Held, 1)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 1)
}
