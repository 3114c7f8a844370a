package storetest

import (
	"example.com/idempotency/store"
)

// The cases of releases that say that nothing was done.

var undoneCases = []testCase{
	// A hundred requests that were turned away need not fill the store for a day.
	{"Undone/is kept as long as the release says", func(e *env) {
		e.claimed()
		e.release(alice, store.Release{Undone: true, Keep: kept})
		e.claim(alice).released(1).ttl(kept)
		e.advance(kept - margin)
		e.mismatch(store.Released, 1)
		e.advance(2 * margin)
		e.absent()
	}},
	{"Undone/is not kept beyond the retention", func(e *env) {
		e.claimed()
		e.release(alice, store.Release{Undone: true, Keep: 10 * retention})
		e.claim(alice).ttl(retention)

		other := e.on("other key")
		other.claimed()
		other.release(alice, store.Release{Undone: true})
		other.claim(alice).ttl(retention)
	}},
	{"Undone/repeated is success without effect", func(e *env) {
		e.undo(alice, 1)
		e.advance(kept / 2)
		e.release(alice, undone)
		e.claim(alice).ttl(kept / 2)
		e.claim(bob, mismatching).mine(2)
		e.refused(store.ErrNotOwner).release(alice, undone)
	}},
	// The client has corrected its request. From then on the key is bound to the corrected one.
	{"Undone/unbound, it gets the next payload", func(e *env) {
		e.undo(alice, 1)
		e.claim(bob, mismatching).mine(2).boundTo(otherPayload).lease(lease).ttl(retention)
		e.claim(carol).claimed(2)
		e.complete(bob, "answer")
		e.claim(carol, mismatching).answer("answer")
		e.claim(carol).boundTo(otherPayload)
	}},
	{"Undone/unbound, it is one of a hundred's", func(e *env) {
		e.undo(alice, 1)
		e.race(2, func(i int) store.Fingerprint { return store.Fingerprint{byte(i)} })
	}},
	// As after any release: nobody would be left to end it.
	{"Undone/unbound, a delayed claim does not come alive", func(e *env) {
		e.undo(alice, 1)
		e.claim(alice).released(1)
		e.claim(alice, mismatching).released(1)
		e.claim(bob).mine(2)
	}},
	// A key belongs to the request that was the first to claim it, also if that one did not run.
	{"Undone/unused, it stays bound", func(e *env) {
		e.claimed()
		e.release(alice, unused)
		e.claim(alice).ttl(kept)
		e.mismatch(store.Released, 1)
		e.claim(carol).mine(2)
		e.release(carol, unused)
		e.mismatch(store.Released, 2)
		e.claim(alice).mine(3)
	}},
	// The client was told to come back with another payload. Another request of its is no reason to
	// refuse that.
	{"Undone/unused, it stays unbound", func(e *env) {
		e.undo(alice, 1)
		for i, o := range []store.Owner{bob, carol} {
			e.claim(o).mine(i + 2)
			e.mismatch(store.Claimed, i+2)
			e.release(o, unused)
			e.claim(o).ttl(kept)
		}
		e.claim(alice, mismatching).mine(4)
		e.claim(bob).claimed(4)
		e.release(alice, unused)
		e.claim(bob).mine(5)
	}},
	// The release comes late.
	{"Undone/unused, it stays unbound through a lapse", func(e *env) {
		e.undo(alice, 1)
		e.claim(bob, holding).mine(2)
		e.advance(lease + margin)
		e.claim(carol).held(2)
		e.release(bob, unused)
		e.claim(carol, mismatching).mine(3)
	}},
	// A run binds the key.
	{"Undone/used, it is bound again", func(e *env) {
		e.undo(alice, 1)
		e.claim(bob).mine(2)
		e.release(bob, store.Release{Undone: true, Keep: kept})
		e.mismatch(store.Released, 2)

		e.claim(alice).mine(3)
		e.release(alice, undone)
		e.claim(bob).mine(4)
		e.release(bob) // it may have done something
		e.mismatch(store.Released, 4)
		e.claim(alice).mine(5)
		e.release(alice, unused)
		e.mismatch(store.Released, 5)
	}},
	{"Undone/must be said", func(e *env) {
		e.claim(carol).mine(1)
		e.release(carol, store.Release{Keep: kept, Unbind: true})
		e.stays(1)
	}},
	// A client corrects its request more than once.
	{"Undone/several attempts have done nothing", func(e *env) {
		e.undo(alice, 1)
		e.undo(bob, 2, mismatching)
		e.claim(bob, mismatching).ttl(kept)
		e.claim(carol).mine(3)
	}},
	{"Undone/a repeated claim changes nothing", func(e *env) {
		e.lapsed()
		e.undo(alice, 1)
		e.claim(alice).ttl(kept)
		e.claim(bob, mismatching).mine(2)
	}},
	// The store has seen nothing but silence. The owner knows better.
	{"Undone/of what became held by lapse", func(e *env) {
		e.lapsed(holding)
		e.claim(bob).held(1)
		e.release(alice, undone)
		e.claim(alice).ttl(kept)
		e.claim(carol, mismatching).mine(2)
	}},
	// Nobody knows what the first attempt did for the first payload, or whether it still does it.
	{"Undone/after a lapse the record stays", func(e *env) {
		e.lapsed()
		e.undo(carol, 2)
		e.stays(2)
	}},
	{"Undone/after another release the record stays", func(e *env) {
		e.released()
		e.undo(carol, 2)
		e.stays(2)
	}},
}
