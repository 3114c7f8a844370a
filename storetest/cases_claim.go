package storetest

import (
	"fmt"
	"time"

	"example.com/idempotency/store"
)

func claimCases() []testCase {
	return []testCase{
		{"Claim/a new key is mine", claimNewKey},
		{"Claim/one of a hundred gets a new key", claimRaceNew},
		{"Claim/one of a hundred takes over a lapsed claim", claimRaceLapsed},
		{"Claim/one of a hundred gets a released key", claimRaceReleased},
		{"Claim/the owner that claims again holds it", claimAgain},
		{"Claim/the owner that claims again is protected anew", claimAgainLease},
		{"Claim/the owner that claims again after its lease holds it", claimAgainLapsed},
		{"Claim/one who waits does not get a released key", claimWaitingReleased},
		{"Claim/one who waits does not get an unbound key", claimWaitingUnbound},
		{"Claim/one who waits takes over a lapsed claim", claimWaitingLapsed},
		{"Claim/one who waits gets a new key", claimWaitingNew},
		{"Claim/in flight reports the lease", claimInFlight},
		{"Claim/keys do not influence each other", claimKeysApart},
		{"Claim/many keys", claimManyKeys},
	}
}

// The first claim tells everything about the record that it makes.
func claimNewKey(e *env) {
	r := e.claim(key, alice)
	e.mine(r, 1)
	e.bound(r)
	e.near("Lease", r.Lease, lease)
	e.near("TTL", r.TTL, retention)
	e.near("Age", r.Age, 0)
	if r.Answer != nil || len(r.Steps) != 0 {
		e.t.Errorf("a new record has an answer (%q) or steps (%v)", r.Answer, r.Steps)
	}
}

// A store that looks first and writes afterwards lets two handlers run at once. If this
// case fails, nothing else in the contract matters.
func claimRaceNew(e *env) {
	records := e.race()
	winners := 0
	for _, r := range records {
		if r.Mine {
			winners++
			e.mine(r, 1)
		} else {
			e.notMine(r, store.Claimed, 1)
		}
	}
	if winners != 1 {
		e.t.Errorf("%d of %d callers hold the claim, want 1", winners, len(records))
	}
}

// When a server dies its clients retry together, and all of them find the lapsed claim.
func claimRaceLapsed(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.oneTakesOver(e.race())
}

// Clients that wait for a run are woken together when the run gives the claim back.
func claimRaceReleased(e *env) {
	e.claimed()
	e.ok("Release", e.release(alice))
	e.oneTakesOver(e.race())
}

// race lets a hundred owners claim the key at once.
func (e *env) race() []store.Record {
	e.t.Helper()
	return e.concurrently(100, func(i int) (store.Record, error) {
		return e.store.Claim(e.ctx, key, store.Claim{
			Owner: ownerOf(fmt.Sprint("racer ", i)), Fingerprint: payload, Lease: lease, Retention: retention,
		})
	})
}

// oneTakesOver fails the case unless one of the callers has attempt 2 and all others see
// that attempt in flight.
func (e *env) oneTakesOver(records []store.Record) {
	e.t.Helper()
	winners := 0
	for _, r := range records {
		if r.Mine {
			winners++
			e.mine(r, 2)
		} else {
			e.notMine(r, store.Claimed, 2)
		}
		e.bound(r)
	}
	if winners != 1 {
		e.t.Errorf("%d of %d callers hold the claim, want 1", winners, len(records))
	}
}

// A client library resends a claim whose reply was lost. If the store said "in
// flight", the request would lock itself out. If it counted another attempt, the handler
// would believe that it runs for the second time.
func claimAgain(e *env) {
	e.claimed()
	e.mine(e.claim(key, alice), 1)
	e.advance(10 * time.Second)
	e.mine(e.claim(key, alice), 1)

	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
	e.mine(e.claim(key, bob), 2)
}

// Whoever waits for an answer is told that there is none. A claim that was granted and given back
// would count as an attempt, and say nothing of what the attempts before it have done.
func claimWaitingReleased(e *env) {
	e.claimed()
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Release", e.release(alice))
	r := e.claim(key, bob, watching)
	e.notMine(r, store.Released, 1)
	e.near("TTL", r.TTL, retention)
	e.notMine(e.claim(key, carol, watching, holding), store.Released, 1)
	e.mine(e.claim(key, bob), 2)
	e.mine(e.claim(key, bob, watching), 2)
}

func claimWaitingUnbound(e *env) {
	e.undo(alice, 1)
	e.notMine(e.claim(key, bob, watching), store.Released, 1)
	r := e.claim(key, carol, watching, mismatching)
	e.notMine(r, store.Released, 1)
	e.bound(r)
	e.mine(e.claim(key, carol, mismatching), 2)
}

func claimWaitingLapsed(e *env) {
	e.claimed()
	e.advance(lease + margin)
	r := e.claim(key, bob, watching)
	e.mine(r, 2)
	if !r.Lapsed {
		e.t.Errorf("Claim: Lapsed is false")
	}
}

func claimWaitingNew(e *env) {
	e.mine(e.claim(key, alice, watching), 1)
}

// A request may claim several times until it gets a reply. It counts its lease from that
// last claim. If the store ended the lease sooner, two handlers would run.
func claimAgainLease(e *env) {
	e.claimed()
	e.advance(20 * time.Second)
	e.mine(e.claim(key, alice), 1)
	e.advance(20 * time.Second)
	r := e.claim(key, bob)
	e.notMine(r, store.Claimed, 1)
	e.near("Lease", r.Lease, lease-20*time.Second)
	e.near("TTL", r.TTL, retention-20*time.Second)
}

// The lease may end before the resent claim arrives. Nobody has taken over, so the owner
// still has the claim, with a new lease.
func claimAgainLapsed(e *env) {
	for name, edits := range map[string][]func(*store.Claim){"key": nil, "held": {holding}} {
		k := keyOf(name)
		e.mine(e.claim(k, alice, edits...), 1)
		e.advance(lease + margin)
		e.mine(e.claim(k, alice, edits...), 1)
		e.notMine(e.claim(k, bob, edits...), store.Claimed, 1)
	}
}

// The rest of the lease tells the client when to come back. The store measures it by its
// own clock.
func claimInFlight(e *env) {
	e.claimed()
	e.advance(10 * time.Second)
	r := e.claim(key, bob)
	e.notMine(r, store.Claimed, 1)
	e.bound(r)
	e.near("Lease", r.Lease, lease-10*time.Second)
	e.near("TTL", r.TTL, retention-10*time.Second)
	e.near("Age", r.Age, 10*time.Second)
}

// A store may keep several keys in one place. What happens to one of them must not show in
// another.
func claimKeysApart(e *env) {
	e.claimed()
	other := keyOf("another key")
	r := e.claim(other, bob, mismatching)
	e.mine(r, 1)
	if r.Fingerprint != otherPayload {
		e.t.Errorf("the record of one key has the fingerprint of another")
	}

	e.ok("Complete", e.store.Complete(e.ctx, key, alice, completion("alice's")))
	e.notMine(e.claim(other, carol, mismatching), store.Claimed, 1)
	e.refused("Complete of another's key", e.store.Complete(e.ctx, other, alice, completion("alice's")), store.ErrNotOwner)

	e.ok("Release", e.store.Release(e.ctx, other, bob, store.Release{}))
	e.answer(e.claim(key, carol), "alice's")
}

// Each of a thousand keys gets its own answer back.
func claimManyKeys(e *env) {
	const n = 1000
	for i := range n {
		name := fmt.Sprint("key ", i)
		e.mine(e.claim(keyOf(name), ownerOf(name)), 1)
	}
	for i := range n {
		name := fmt.Sprint("key ", i)
		e.ok("Complete", e.store.Complete(e.ctx, keyOf(name), ownerOf(name), completion(name)))
	}
	for i := range n {
		name := fmt.Sprint("key ", i)
		e.answer(e.claim(keyOf(name), alice), name)
	}
}
