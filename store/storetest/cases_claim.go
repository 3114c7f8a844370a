package storetest

import (
	"fmt"
	"time"

	"example.com/idempotency/store"
)

var claimCases = []testCase{
	// The first claim tells everything about the record that it makes.
	{"Claim/a new key is mine", func(e *env) {
		e.claim(alice).mine(1).bound().lease(lease).ttl(retention).age(0).answerless().steps()
	}},
	// A store that looks first and writes afterwards lets two handlers run at once. If this
	// case fails, nothing else in the contract matters.
	{"Claim/one of a hundred gets a new key", func(e *env) {
		e.race(1, samePayload)
	}},
	// When a server dies its clients retry together, and all of them find the lapsed claim.
	{"Claim/one of a hundred takes over a lapsed claim", func(e *env) {
		e.lapsed()
		e.race(2, samePayload)
	}},
	// Clients that wait for a run are woken together when the run gives the claim back.
	{"Claim/one of a hundred gets a released key", func(e *env) {
		e.released()
		e.race(2, samePayload)
	}},
	// A client library resends a claim whose reply was lost. If the store said "in
	// flight", the request would lock itself out. If it counted another attempt, the handler
	// would believe that it runs for the second time.
	{"Claim/the owner that claims again holds it", func(e *env) {
		e.claimed()
		e.claim(alice).mine(1)
		e.advance(100 * time.Second)
		e.claim(alice).mine(1)

		e.release(alice)
		e.claim(bob).mine(2)
		e.claim(bob).mine(2)
	}},
	// A request may claim several times until it gets a reply. It counts its lease from that
	// last claim. If the store ended the lease sooner, two handlers would run.
	{"Claim/the owner that claims again is protected anew", func(e *env) {
		e.claimed()
		e.advance(200 * time.Second)
		e.claim(alice).mine(1)
		e.advance(200 * time.Second)
		e.claim(bob).claimed(1).lease(lease - 200*time.Second).ttl(retention - 200*time.Second)
	}},
	// The lease may end before the resent claim arrives. Nobody has taken over, so the owner
	// still has the claim, with a new lease.
	{"Claim/the owner that claims again after its lease holds it", func(e *env) {
		for name, edits := range map[string][]edit{"key": nil, "held": {holding}} {
			e := e.on(name)
			e.lapsed(edits...)
			e.claim(alice, edits...).mine(1)
			e.claim(bob, edits...).claimed(1)
		}
	}},
	// Whoever waits for an answer is told that there is none. A claim that was granted and given back
	// would count as an attempt, and say nothing of what the attempts before it have done.
	{"Claim/one who waits does not get a released key", func(e *env) {
		e.claimed()
		e.claim(bob, watching).claimed(1)
		e.release(alice)
		e.claim(bob, watching).released(1).ttl(retention)
		e.claim(carol, watching, holding).released(1)
		e.claim(bob).mine(2)
		e.claim(bob, watching).mine(2)
	}},
	{"Claim/one who waits does not get an unbound key", func(e *env) {
		e.undo(alice, 1)
		e.claim(bob, watching).released(1)
		e.claim(carol, watching, mismatching).released(1).bound()
		e.claim(carol, mismatching).mine(2)
	}},
	{"Claim/one who waits takes over a lapsed claim", func(e *env) {
		e.lapsed()
		e.claim(bob, watching).mine(2).lapsed(true)
	}},
	{"Claim/one who waits gets a new key", func(e *env) {
		e.claim(alice, watching).mine(1)
	}},
	// The rest of the lease tells the client when to come back. The store measures it by its
	// own clock.
	{"Claim/in flight reports the lease", func(e *env) {
		e.claimed()
		e.advance(100 * time.Second)
		e.claim(bob).claimed(1).bound().lease(lease - 100*time.Second).ttl(retention - 100*time.Second).age(100 * time.Second)
	}},
	// A store may keep several keys in one place. What happens to one of them must not show in
	// another.
	{"Claim/keys do not influence each other", func(e *env) {
		other := e.on("another key")
		e.claimed()
		other.claim(bob, mismatching).mine(1).boundTo(otherPayload)
		e.complete(alice, "alice's")
		other.claim(carol, mismatching).claimed(1)
		other.refused(store.ErrNotOwner).complete(alice, "alice's")
		other.release(bob)
		e.claim(carol).answer("alice's")
	}},
	// Each of a thousand keys gets its own answer back.
	{"Claim/many keys", func(e *env) {
		const n = 1000
		for i := range n {
			name := fmt.Sprint("key ", i)
			e.on(name).claim(ownerOf(name)).mine(1)
		}
		for i := range n {
			name := fmt.Sprint("key ", i)
			e.on(name).complete(ownerOf(name), name)
		}
		for i := range n {
			name := fmt.Sprint("key ", i)
			e.on(name).claim(alice).answer(name)
		}
	}},
}

func samePayload(int) store.Fingerprint { return payload }
