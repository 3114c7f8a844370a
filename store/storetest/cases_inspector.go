package storetest

// What an operator does about a record.

import (
	"example.com/idempotency/store"
)

var inspectorCases = []testCase{
	{"Resolve/with an answer completes", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), answered("resolved"))
		e.claim(bob).answer("resolved").bound().ttl(ttl)
	}},
	// An answer of no bytes is an answer.
	{"Resolve/with an empty answer completes", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), answered(""))
		e.claim(bob).answer("")
	}},
	{"Resolve/without an answer releases", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), released)
		e.get().released(1)
		e.claim(bob).mine(2).bound()
	}},
	// The process died and nobody has claimed since, so the stored record is not yet held: it
	// is only reported as held. An operator can settle it all the same.
	{"Resolve/of a lapsed claim that says Hold", func(e *env) {
		e.claimed(holding)
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), answered("resolved"))
		e.advance(lease + margin)
		e.resolve(heldBy(alice, 1), answered("resolved"))
		e.claim(bob).answer("resolved")
	}},
	{"Resolve/repeated is success", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), released)
		e.resolve(heldBy(alice, 1), released)
		e.claim(bob).mine(2)
		e.hold(bob)
		e.resolve(heldBy(bob, 2), answered("resolved"))
		e.resolve(heldBy(bob, 2), answered("resolved"))
		e.claim(carol).answer("resolved")
	}},
	// The operator has decided about the run that she saw, but another run has failed since.
	{"Resolve/of another attempt is refused", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), released)
		e.claim(bob).mine(2)
		e.hold(bob)
		for _, attempt := range []int{0, 1, 3} {
			e.refused(store.ErrChanged).resolve(heldBy(bob, attempt), answered("resolved"))
			e.refused(store.ErrChanged).resolve(heldBy(bob, attempt), released)
		}
		e.claim(carol).held(2)
	}},
	// The operator has looked before the record was held, or after it was released. Nothing that
	// she saw then speaks of an unknown outcome.
	{"Resolve/of another state is refused", func(e *env) {
		e.held()
		for _, state := range []store.State{
			0, store.Claimed, store.Released, store.Completed, store.Corrupt,
		} {
			seen := store.Seen{Owner: alice, Attempt: 1, State: state}
			e.refused(store.ErrChanged).resolve(seen, answered("resolved"))
			e.refused(store.ErrChanged).resolve(seen, released)
		}
		e.claim(bob).held(1)
	}},
	// An operator has found out what became of one run. Until she says so, the record is gone, and
	// another run of the same attempt is held. Nobody knows what became of that one.
	{"Resolve/of a later record is refused", func(e *env) {
		laterRecords(e, func(seen store.Seen) {
			e.refused(store.ErrChanged).resolve(seen, answered("resolved"))
			e.refused(store.ErrChanged).resolve(seen, released)
		})
	}},
	// A mark that stayed would hold the key at the next run. A step that has happened must not
	// happen again.
	{"Resolve/takes the undone steps away", func(e *env) {
		heldWithSteps(e)
		e.resolve(heldBy(alice, 1), undoing("mail", "begun", "wire", "begun"))
		e.get().released(1).steps("charge", "ch_1")
		e.claim(bob).mine(2).steps("charge", "ch_1")

		e.save(bob, "mail", "begun")
		e.hold(bob)
		e.resolve(heldBy(bob, 2), answered("resolved"))
		e.get().steps("charge", "ch_1", "mail", "begun")
	}},
	// The steps are gone when the call is repeated. That is what the first call did.
	{"Resolve/repeated with its undone steps is success", func(e *env) {
		heldWithSteps(e)
		e.resolve(heldBy(alice, 1), undoing("wire", "begun"))
		e.resolve(heldBy(alice, 1), undoing("wire", "begun"))
		e.get().steps("charge", "ch_1", "mail", "begun")
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), undoing("charge", "ch_1"))
		e.claim(bob).steps("charge", "ch_1", "mail", "begun")
	}},
	// The process was only slow, and recorded the result of the step before it lost its claim.
	// The operator saw the mark and believes that the step did not happen.
	{"Resolve/of steps that have changed is refused", func(e *env) {
		heldWithSteps(e)
		for _, s := range []store.Settlement{
			undoing("charge", "begun"), undoing("wire", "begun", "charge", "begun"), undoing("refund", "begun"), undoing("refund", ""),
		} {
			e.refused(store.ErrChanged).resolve(heldBy(alice, 1), s)
		}
		e.claim(bob).held(1)
		e.get().steps("charge", "ch_1", "mail", "begun", "wire", "begun")

		e.forget(heldBy(alice, 1))
		e.claimed(holding)
		e.save(alice, "wire", "begun")
		e.advance(lease + margin)
		e.save(alice, "wire", "w_1")
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), undoing("wire", "begun"))
		e.get().steps("wire", "w_1")
	}},
	{"Resolve/unless held is refused", func(e *env) {
		e.refused(store.ErrNotFound).resolve(heldBy(alice, 1), answered("resolved"))
		e.claimed()
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), answered("resolved"))
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), released)
		e.claim(bob).claimed(1)

		e.release(alice)
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), answered("resolved"))
		e.refused(store.ErrChanged).resolve(heldBy(alice, 1), released)
		e.claim(bob).mine(2)
		e.complete(bob, "answer")
		e.refused(store.ErrChanged).resolve(heldBy(bob, 2), answered("resolved"))
		e.refused(store.ErrChanged).resolve(heldBy(bob, 2), released)
		e.refused(store.ErrChanged).resolve(heldBy(bob, 2), answered("answer"))
		e.claim(carol).answer("answer")
	}},
	// Once a record is resolved, clients have been told. If the run comes back after all, it
	// must not tell them something else.
	{"Resolve/is not overruled by the owner", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), answered("resolved"))
		e.refused(store.ErrNotOwner).complete(alice, "alice's")
		e.claim(bob).answer("resolved")

		e.forget(e.get().Seen())
		e.held()
		e.resolve(heldBy(alice, 1), released)
		e.refused(store.ErrNotOwner).complete(alice, "alice's")
		e.claim(bob).mine(2)
	}},
	// The record was released although its run was not over. If that run comes back before
	// anybody else, its answer prevents another run.
	{"Resolve/without an answer lets the owner claim anew", func(e *env) {
		e.held()
		e.resolve(heldBy(alice, 1), released)
		e.claim(alice).mine(2)
		e.complete(alice, "alice's")
		e.claim(bob).answer("alice's")
	}},
	// Nobody knows what the attempt did that was resolved, only that it did not do everything.
	{"Resolve/without an answer, the record is not blank", func(e *env) {
		e.lapsed(holding)
		e.resolve(heldBy(alice, 1), released)
		e.undo(carol, 2)
		e.stays(2)
	}},
	{"Forget/makes the key new", func(e *env) {
		e.held()
		e.forget(heldBy(alice, 1))
		e.refused(store.ErrNotFound).get()
		e.refused(store.ErrNotOwner).complete(alice, "answer")
		e.absent()
	}},
	{"Forget/a completed, released or lapsed record", func(e *env) {
		e.completed("answer")
		e.forget(e.get().Seen())
		e.released()
		e.forget(e.get().Seen())
		e.lapsed()
		e.forget(e.get().Seen())
		e.lapsed(holding)
		e.forget(e.get().Seen())
		e.absent()
	}},
	{"Forget/repeated is success", func(e *env) {
		e.forget(heldBy(alice, 1))
		e.forget(corrupt)
		e.completed("answer")
		seen := e.get().Seen()
		e.forget(seen)
		e.forget(seen)
		e.absent()
	}},
	// If a run in flight could be forgotten, the next request would run beside it.
	{"Forget/of a live claim is refused", func(e *env) {
		e.claimed()
		e.refused(store.ErrChanged).forget(e.get().Seen())
		e.claim(bob).claimed(1)
		e.complete(alice, "answer")
	}},
	{"Forget/of another attempt is refused", func(e *env) {
		e.released()
		e.claim(bob).mine(2)
		e.complete(bob, "answer")
		seen := e.get().Seen()
		for _, attempt := range []int{0, 1, 3} {
			seen.Attempt = attempt
			e.refused(store.ErrChanged).forget(seen)
		}
		e.claim(carol).answer("answer")
	}},
	// The operator has looked at a held record. Its run has come back since and recorded its
	// answer, which is not the operator's to remove.
	{"Forget/of another state is refused", func(e *env) {
		e.held()
		seen := e.get().Seen()
		e.complete(alice, "answer")
		e.refused(store.ErrChanged).forget(seen)
		e.refused(store.ErrChanged).forget(store.Seen{})
		e.refused(store.ErrChanged).forget(store.Seen{Owner: alice, Attempt: 1})
		e.claim(bob).answer("answer")
	}},
	// The operator has found out that one run did nothing. She does not know of the next one.
	{"Forget/of a later record is refused", func(e *env) {
		laterRecords(e, func(seen store.Seen) {
			e.refused(store.ErrChanged).forget(seen)
		})
	}},
	// That a record cannot be read is something to have seen, too, and not a way around looking.
	{"Forget/as corrupt of what can be read is refused", func(e *env) {
		e.completed("answer")
		for _, attempt := range []int{0, 1} {
			seen := corrupt
			seen.Attempt = attempt
			e.refused(store.ErrChanged).forget(seen)
		}
		e.claim(bob).answer("answer")
	}},
}

// laterRecords calls f for each way in which a key gets another record, with what was seen of
// the first: attempt 1, held. So is the second, of the same payload.
func laterRecords(e *env, f func(seen store.Seen)) {
	e.t.Helper()
	for _, forgotten := range []bool{true, false} {
		e.held(holding, holdEnding)
		seen := e.get().Seen()
		if forgotten {
			e.forget(seen)
		} else {
			e.advance(retention + margin)
		}
		e.claim(bob).mine(1)
		e.hold(bob)
		f(seen)
		r := e.get().held(1)
		if r.Owner != bob {
			e.t.Errorf("got the owner %x, want that of the later record", r.Owner)
		}
		e.forget(r.Seen())
	}
}

// heldWithSteps makes a held record with the steps charge, mail and wire.
func heldWithSteps(e *env) {
	e.t.Helper()
	e.claimed()
	e.save(alice, "charge", "ch_1", "mail", "begun", "wire", "begun")
	e.hold(alice)
}

// corrupt is what somebody has seen of a record that cannot be read.
var corrupt = store.Seen{State: store.Corrupt}
