package storetest

import (
	"example.com/idempotency/store"
)

func releaseCases() []testCase {
	return []testCase{
		{"Release/the next claim is the next attempt", releaseNext},
		{"Release/repeated is success", releaseRepeated},
		{"Release/after the lease is accepted", releaseLapsed},
		{"Release/by another owner is refused", releaseOther},
		{"Release/after a takeover is refused", releaseTakenOver},
		{"Release/of an absent record is refused", releaseAbsent},
		{"Release/a delayed claim does not come alive", releaseDelayedClaim},
		{"Release/starts the retention anew", releaseRetention},
		{"Release/of what became held by lapse is accepted", releaseHeldByLapse},
		{"Release/of what the owner has held after the lapse is refused", releaseHeldTwice},
	}
}

// The run has done nothing, so the client's retry need not wait for the end of the lease.
func releaseNext(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.bound(r)
	e.near("Lease", r.Lease, lease)
}

// The second call changes neither the record nor the claim that the next owner may have by
// then (see releaseTakenOver).
func releaseRepeated(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.ok("repeated Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
}

func releaseLapsed(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.ok("Release after the lease", e.release(alice))
	e.mine(e.claim(key, bob, holding), 2)
}

func releaseOther(e *env) {
	e.claimed()
	e.refused("Release by another owner", e.release(bob), store.ErrNotOwner)
	e.notMine(e.claim(key, carol), store.Claimed, 1)
	e.ok("Complete", e.complete(alice, "answer"))
}

// A paused run comes back and cleans up. It must not release the key while another run is
// in flight.
func releaseTakenOver(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.refused("Release after a takeover", e.release(alice), store.ErrNotOwner)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
	e.ok("Complete", e.complete(bob, "answer"))
}

func releaseAbsent(e *env) {
	e.refused("Release of an absent record", e.release(alice), store.ErrNotOwner)
	e.refused("Hold of an absent record", e.store.Hold(e.ctx, key, alice), store.ErrNotOwner)
	e.mine(e.claim(key, bob), 1)
}

// The request gave up while its claim was on the wire, and released. If the claim took
// effect when it arrives, nobody would be left to end it.
func releaseDelayedClaim(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.notMine(e.claim(key, alice), store.Released, 1)
	e.mine(e.claim(key, bob), 2)
}

// A record outlives its release. While the client still retries, the attempts must not
// start again from 1, and another payload must not get the key.
func releaseRetention(e *env) {
	e.claimed()
	e.advance(retention - margin)
	e.ok("Release", e.release(alice))
	e.advance(retention - margin)
	e.mismatch(store.Released, 1)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.bound(r)
}

// Nothing has happened, but the store was away when the run said so. Meanwhile another request
// has found the lapsed claim. If the key stayed held, somebody would have to look into a run
// that never was.
func releaseHeldByLapse(e *env) {
	e.claimed(holding)
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.refused("Release by another owner", e.release(bob), store.ErrNotOwner)
	e.ok("Release", e.release(alice))
	e.ok("repeated Release", e.release(alice))
	r := e.claim(key, bob, holding)
	e.mine(r, 2)
	e.bound(r)

	other := keyOf("other key")
	e.mine(e.claim(other, alice), 1)
	e.advance(lease + margin)
	e.notMine(e.claim(other, bob, holding), store.Held, 1)
	e.ok("Release", e.store.Release(e.ctx, other, alice, store.Release{}))
	e.mine(e.claim(other, bob, holding), 2)
}

// The owner has said that the outcome is unknown, and cannot take that back.
func releaseHeldTwice(e *env) {
	e.claimed(holding)
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.refused("Release after Hold", e.release(alice), store.ErrNotOwner)
	e.notMine(e.claim(key, bob), store.Held, 1)
}

func holdCases() []testCase {
	return []testCase{
		{"Hold/nobody may run", holdBlocks},
		{"Hold/repeated is success", holdRepeated},
		{"Hold/by another owner is refused", holdOther},
		{"Hold/after a takeover is refused", holdTakenOver},
		{"Hold/after Release is refused", holdReleased},
		{"Hold/a delayed claim does not come alive", holdDelayedClaim},
		{"Hold/starts the retention anew", holdRetention},
	}
}

// The effect may have happened. Waiting does not tell, and even the owner cannot release
// the key.
func holdBlocks(e *env) {
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	r := e.claim(key, bob)
	e.notMine(r, store.Held, 1)
	e.bound(r)
	e.near("Age", r.Age, 0)
	if r.Lease != 0 {
		e.t.Errorf("Lease: got %v of a held record, want 0", r.Lease)
	}
	e.advance(lease + margin)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.refused("Release after Hold", e.release(alice), store.ErrNotOwner)
	e.refused("Renew after Hold", e.store.Renew(e.ctx, key, alice), store.ErrNotOwner)
	e.notMine(e.claim(key, bob), store.Held, 1)
}

func holdRepeated(e *env) {
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.ok("repeated Hold", e.store.Hold(e.ctx, key, alice))
	e.notMine(e.claim(key, bob), store.Held, 1)
}

func holdOther(e *env) {
	e.claimed()
	e.refused("Hold by another owner", e.store.Hold(e.ctx, key, bob), store.ErrNotOwner)
	e.notMine(e.claim(key, carol), store.Claimed, 1)
}

// A paused run comes back and does not know what it did. Another run is already in flight
// and will record what happens.
func holdTakenOver(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.refused("Hold after a takeover", e.store.Hold(e.ctx, key, alice), store.ErrNotOwner)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
}

func holdReleased(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.refused("Hold after Release", e.store.Hold(e.ctx, key, alice), store.ErrNotOwner)
	e.mine(e.claim(key, bob), 2)
}

// The request is over, as after a release, and its delayed claim must not start a run.
func holdDelayedClaim(e *env) {
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.notMine(e.claim(key, alice), store.Held, 1)
}

func holdRetention(e *env) {
	e.claimed(holdEnding)
	e.advance(retention - margin)
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.advance(retention - margin)
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 1)
}
