package storetest

import (
	"example.com/idempotency/store"
)

var releaseCases = []testCase{
	// The run has done nothing, so the client's retry need not wait for the end of the lease.
	{"Release/the next claim is the next attempt", func(e *env) {
		e.released()
		e.claim(bob).mine(2).bound().lease(lease)
	}},
	// The second call changes neither the record nor the claim that the next owner may have by
	// then, as the case of a takeover shows.
	{"Release/repeated is success", func(e *env) {
		e.released()
		e.release(alice)
		e.claim(bob).mine(2)
	}},
	{"Release/after the lease is accepted", func(e *env) {
		e.lapsed()
		e.release(alice)
		e.claim(bob, holding).mine(2)
	}},
	{"Release/by another owner is refused", func(e *env) {
		e.claimed()
		e.refused(store.ErrNotOwner).release(bob)
		e.claim(carol).claimed(1)
		e.complete(alice, "answer")
	}},
	// A paused run comes back and cleans up. It must not release the key while another run is
	// in flight.
	{"Release/after a takeover is refused", func(e *env) {
		e.takenOver()
		e.refused(store.ErrNotOwner).release(alice)
		e.claim(carol).claimed(2)
		e.complete(bob, "answer")
	}},
	{"Release/of an absent record is refused", func(e *env) {
		e.refused(store.ErrNotOwner).release(alice)
		e.refused(store.ErrNotOwner).hold(alice)
		e.claim(bob).mine(1)
	}},
	// The request gave up while its claim was on the wire, and released. If the claim took
	// effect when it arrives, nobody would be left to end it.
	{"Release/a delayed claim does not come alive", func(e *env) {
		e.released()
		e.claim(alice).released(1)
		e.claim(bob).mine(2)
	}},
	// A record outlives its release. While the client still retries, the attempts must not
	// start again from 1, and another payload must not get the key.
	{"Release/starts the retention anew", func(e *env) {
		e.claimed()
		e.advance(retention - margin)
		e.release(alice)
		e.advance(retention - margin)
		e.mismatch(store.Released, 1)
		e.claim(bob).mine(2).bound()
	}},
	// Nothing has happened, but the store was away when the run said so. Meanwhile another request
	// has found the lapsed claim. If the key stayed held, somebody would have to look into a run
	// that never was.
	{"Release/of what became held by lapse is accepted", func(e *env) {
		e.lapsed(holding)
		e.claim(bob).held(1)
		e.refused(store.ErrNotOwner).release(bob)
		e.release(alice)
		e.release(alice)
		e.claim(bob, holding).mine(2).bound()

		other := e.on("other key")
		other.lapsed()
		other.claim(bob, holding).held(1)
		other.release(alice)
		other.claim(bob, holding).mine(2)
	}},
	// The owner has said that the outcome is unknown, and cannot take that back.
	{"Release/of what the owner has held after the lapse is refused", func(e *env) {
		e.lapsed(holding)
		e.claim(bob).held(1)
		e.hold(alice)
		e.refused(store.ErrNotOwner).release(alice)
		e.claim(bob).held(1)
	}},
}

var holdCases = []testCase{
	// The effect may have happened. Waiting does not tell, and even the owner cannot release
	// the key.
	{"Hold/nobody may run", func(e *env) {
		e.held()
		e.claim(bob).held(1).bound().age(0).unprotected()
		e.advance(lease + margin)
		e.claim(bob).held(1)
		e.refused(store.ErrNotOwner).release(alice)
		e.refused(store.ErrNotOwner).renew(alice)
		e.claim(bob).held(1)
	}},
	{"Hold/repeated is success", func(e *env) {
		e.held()
		e.hold(alice)
		e.claim(bob).held(1)
	}},
	{"Hold/by another owner is refused", func(e *env) {
		e.claimed()
		e.refused(store.ErrNotOwner).hold(bob)
		e.claim(carol).claimed(1)
	}},
	// A paused run comes back and does not know what it did. Another run is already in flight
	// and will record what happens.
	{"Hold/after a takeover is refused", func(e *env) {
		e.takenOver()
		e.refused(store.ErrNotOwner).hold(alice)
		e.claim(carol).claimed(2)
	}},
	{"Hold/after Release is refused", func(e *env) {
		e.released()
		e.refused(store.ErrNotOwner).hold(alice)
		e.claim(bob).mine(2)
	}},
	// The request is over, as after a release, and its delayed claim must not start a run.
	{"Hold/a delayed claim does not come alive", func(e *env) {
		e.held()
		e.claim(alice).held(1)
	}},
	{"Hold/starts the retention anew", func(e *env) {
		e.claimed(holdEnding)
		e.advance(retention - margin)
		e.hold(alice)
		e.advance(retention - margin)
		e.claim(bob).held(1)
		e.advance(2 * margin)
		e.claim(bob).mine(1)
	}},
}
