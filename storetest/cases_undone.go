package storetest

import (
	"time"

	"example.com/idempotency/store"
)

// The cases of releases that say that nothing was done.

func undoneCases() []testCase {
	return []testCase{
		{"Undone/is kept as long as the release says", undoneKept},
		{"Undone/is not kept beyond the retention", undoneRetention},
		{"Undone/repeated is success without effect", undoneRepeated},
		{"Undone/unbound, it gets the next payload", undoneUnbound},
		{"Undone/unbound, it is one of a hundred's", undoneRace},
		{"Undone/unbound, a delayed claim does not come alive", undoneDelayedClaim},
		{"Undone/unused, it stays bound", undoneUnused},
		{"Undone/unused, it stays unbound", undoneUnusedUnbound},
		{"Undone/unused, it stays unbound through a lapse", undoneUnusedLapsed},
		{"Undone/used, it is bound again", undoneUsed},
		{"Undone/must be said", undoneUnsaid},
		{"Undone/several attempts have done nothing", undoneAgain},
		{"Undone/a repeated claim changes nothing", undoneRepeatedClaim},
		{"Undone/of what became held by lapse", undoneHeldByLapse},
		{"Undone/after a lapse the record stays", undoneAfterLapse},
		{"Undone/after another release the record stays", undoneAfterRelease},
	}
}

// kept is how long the records of these cases are kept of which nothing was done.
const kept = 2 * time.Minute

// undone is what a run says that has done nothing.
var undone = store.Release{Undone: true, Keep: kept, Unbind: true}

// undo releases the key as undone, after it was claimed as the given attempt.
func (e *env) undo(o store.Owner, attempt int, edits ...func(*store.Claim)) {
	e.t.Helper()
	e.mine(e.claim(key, o, edits...), attempt)
	e.ok("Release", e.store.Release(e.ctx, key, o, undone))
}

// stays fails the case unless the record, which carol has released as undone, is bound and kept
// as if she had not said so.
func (e *env) stays(attempt int) {
	e.t.Helper()
	r := e.claim(key, carol)
	e.notMine(r, store.Released, attempt)
	e.near("TTL of a record that is not blank", r.TTL, retention)
	r = e.claim(key, bob, mismatching)
	e.notMine(r, store.Released, attempt)
	e.bound(r)
}

// A hundred requests that were turned away need not fill the store for a day.
func undoneKept(e *env) {
	e.claimed()
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{Undone: true, Keep: kept}))
	r := e.claim(key, alice)
	e.notMine(r, store.Released, 1)
	e.near("TTL", r.TTL, kept)
	e.advance(kept - margin)
	e.mismatch(store.Released, 1)
	e.advance(2 * margin)
	e.absent()
}

func undoneRetention(e *env) {
	e.claimed()
	e.ok("Release", e.store.Release(e.ctx, key, alice, store.Release{Undone: true, Keep: 10 * retention}))
	e.near("TTL", e.claim(key, alice).TTL, retention)

	other := keyOf("other key")
	e.mine(e.claim(other, alice), 1)
	e.ok("Release", e.store.Release(e.ctx, other, alice, store.Release{Undone: true}))
	e.near("TTL", e.claim(other, alice).TTL, retention)
}

func undoneRepeated(e *env) {
	e.undo(alice, 1)
	e.advance(kept / 2)
	e.ok("repeated Release", e.store.Release(e.ctx, key, alice, undone))
	e.near("TTL", e.claim(key, alice).TTL, kept/2)
	e.mine(e.claim(key, bob, mismatching), 2)
	e.refused("Release after a claim", e.store.Release(e.ctx, key, alice, undone), store.ErrNotOwner)
}

// The client has corrected its request. From then on the key is bound to the corrected one.
func undoneUnbound(e *env) {
	e.undo(alice, 1)
	r := e.claim(key, bob, mismatching)
	e.mine(r, 2)
	if r.Fingerprint != otherPayload {
		e.t.Errorf("Claim: the record is mine and has another fingerprint than my claim")
	}
	e.near("Lease", r.Lease, lease)
	e.near("TTL", r.TTL, retention)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
	e.ok("Complete", e.complete(bob, "answer"))
	e.answer(e.claim(key, carol, mismatching), "answer")
	if r := e.claim(key, carol); r.Fingerprint != otherPayload {
		e.t.Errorf("Claim: the record is bound to the first payload again")
	}
}

func undoneRace(e *env) {
	e.undo(alice, 1)
	winners := 0
	for _, r := range e.concurrently(100, func(i int) (store.Record, error) {
		c := claimOf(store.Owner{byte(i), 1})
		c.Fingerprint = store.Fingerprint{byte(i)}
		return e.store.Claim(e.ctx, key, c)
	}) {
		if r.Mine {
			winners++
		}
	}
	if winners != 1 {
		e.t.Errorf("%d of 100 callers hold the claim, want 1", winners)
	}
}

// As after any release: nobody would be left to end it.
func undoneDelayedClaim(e *env) {
	e.undo(alice, 1)
	e.notMine(e.claim(key, alice), store.Released, 1)
	e.notMine(e.claim(key, alice, mismatching), store.Released, 1)
	e.mine(e.claim(key, bob), 2)
}

// unused is what is said of a claim under which no run has begun.
var unused = store.Release{Undone: true, Keep: kept, Unused: true}

// A key belongs to the request that was the first to claim it, also if that one did not run.
func undoneUnused(e *env) {
	e.claimed()
	e.ok("Release", e.store.Release(e.ctx, key, alice, unused))
	e.near("TTL", e.claim(key, alice).TTL, kept)
	e.mismatch(store.Released, 1)
	e.mine(e.claim(key, carol), 2)
	e.ok("Release", e.store.Release(e.ctx, key, carol, unused))
	e.mismatch(store.Released, 2)
	e.mine(e.claim(key, alice), 3)
}

// The client was told to come back with another payload. Another request of its is no reason to
// refuse that.
func undoneUnusedUnbound(e *env) {
	e.undo(alice, 1)
	for i, o := range []store.Owner{bob, carol} {
		e.mine(e.claim(key, o), i+2)
		e.mismatch(store.Claimed, i+2)
		e.ok("Release", e.store.Release(e.ctx, key, o, unused))
		e.near("TTL", e.claim(key, o).TTL, kept)
	}
	e.mine(e.claim(key, alice, mismatching), 4)
	e.notMine(e.claim(key, bob), store.Claimed, 4)
	e.ok("Release", e.store.Release(e.ctx, key, alice, unused))
	e.mine(e.claim(key, bob), 5)
}

// The release comes late.
func undoneUnusedLapsed(e *env) {
	e.undo(alice, 1)
	e.mine(e.claim(key, bob, holding), 2)
	e.advance(lease + margin)
	e.notMine(e.claim(key, carol), store.Held, 2)
	e.ok("Release", e.store.Release(e.ctx, key, bob, unused))
	e.mine(e.claim(key, carol, mismatching), 3)
}

// A run binds the key.
func undoneUsed(e *env) {
	e.undo(alice, 1)
	e.mine(e.claim(key, bob), 2)
	e.ok("Release", e.store.Release(e.ctx, key, bob, store.Release{Undone: true, Keep: kept}))
	e.mismatch(store.Released, 2)

	e.mine(e.claim(key, alice), 3)
	e.ok("Release", e.store.Release(e.ctx, key, alice, undone))
	e.mine(e.claim(key, bob), 4)
	e.ok("Release", e.release(bob)) // it may have done something
	e.mismatch(store.Released, 4)
	e.mine(e.claim(key, alice), 5)
	e.ok("Release", e.store.Release(e.ctx, key, alice, unused))
	e.mismatch(store.Released, 5)
}

func undoneUnsaid(e *env) {
	e.mine(e.claim(key, carol), 1)
	e.ok("Release", e.store.Release(e.ctx, key, carol, store.Release{Keep: kept, Unbind: true}))
	e.stays(1)
}

// A client corrects its request more than once.
func undoneAgain(e *env) {
	e.undo(alice, 1)
	e.undo(bob, 2, mismatching)
	e.near("TTL", e.claim(key, bob, mismatching).TTL, kept)
	e.mine(e.claim(key, carol), 3)
}

func undoneRepeatedClaim(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.undo(alice, 1)
	e.near("TTL", e.claim(key, alice).TTL, kept)
	e.mine(e.claim(key, bob, mismatching), 2)
}

// The store has seen nothing but silence. The owner knows better.
func undoneHeldByLapse(e *env) {
	e.claimed(holding)
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.ok("Release", e.store.Release(e.ctx, key, alice, undone))
	e.near("TTL", e.claim(key, alice).TTL, kept)
	e.mine(e.claim(key, carol, mismatching), 2)
}

// Nobody knows what the first attempt did for the first payload, or whether it still does it.
func undoneAfterLapse(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.undo(carol, 2)
	e.stays(2)
}

func undoneAfterRelease(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.undo(carol, 2)
	e.stays(2)
}
