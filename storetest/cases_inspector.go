package storetest

import (
	"example.com/idempotency/store"
)

func inspectorCases() []testCase {
	return append(lookupCases(), []testCase{
		{"Resolve/with an answer completes", resolveCompletes},
		{"Resolve/with an empty answer completes", resolveEmpty},
		{"Resolve/without an answer releases", resolveReleases},
		{"Resolve/of a lapsed claim that says Hold", resolveLapsed},
		{"Resolve/repeated is success", resolveRepeated},
		{"Resolve/of another attempt is refused", resolveFenced},
		{"Resolve/of another state is refused", resolveUnseen},
		{"Resolve/of a later record is refused", resolveLaterRecord},
		{"Resolve/takes the undone steps away", resolveUndoes},
		{"Resolve/repeated with its undone steps is success", resolveUndoneRepeated},
		{"Resolve/of steps that have changed is refused", resolveChangedSteps},
		{"Resolve/unless held is refused", resolveNotHeld},
		{"Resolve/is not overruled by the owner", resolveLateOwner},
		{"Resolve/without an answer lets the owner claim anew", resolveOwnerClaims},
		{"Resolve/without an answer, the record is not blank", resolveNotBlank},
		{"Forget/makes the key new", forgetHeld},
		{"Forget/a completed, released or lapsed record", forgetSettled},
		{"Forget/repeated is success", forgetAbsent},
		{"Forget/of a live claim is refused", forgetLive},
		{"Forget/of another attempt is refused", forgetFenced},
		{"Forget/of another state is refused", forgetUnseen},
		{"Forget/of a later record is refused", forgetLaterRecord},
		{"Forget/as corrupt of what can be read is refused", forgetSound},
	}...)
}

// inspector returns the store as an Inspector, or skips the case.
func (e *env) inspector() store.Inspector {
	e.t.Helper()
	i, ok := e.store.(store.Inspector)
	if !ok {
		e.t.Skip("the store is not an idempotency.Inspector")
	}
	return i
}

// held makes a record that alice has held.
func (e *env) held() store.Inspector {
	e.t.Helper()
	e.claimed()
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	return e.inspector()
}

func resolveCompletes(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")))
	r := e.claim(key, bob)
	e.answer(r, "resolved")
	e.bound(r)
	e.near("TTL", r.TTL, ttl)
}

// An answer of no bytes is an answer.
func resolveEmpty(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("")))
	e.answer(e.claim(key, bob), "")
}

func resolveReleases(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.notMine(e.get(), store.Released, 1)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.bound(r)
}

// The process died and nobody has claimed since, so the stored record is not yet held: it
// is only reported as held. An operator can settle it all the same.
func resolveLapsed(e *env) {
	i := e.inspector()
	e.claimed(holding)
	e.refused("Resolve of a live claim", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")), store.ErrChanged)
	e.advance(lease + margin)
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")))
	e.answer(e.claim(key, bob), "resolved")
}

func resolveRepeated(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.ok("repeated Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.mine(e.claim(key, bob), 2)
	e.ok("Hold", e.store.Hold(e.ctx, key, bob))
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(bob, 2), answered("resolved")))
	e.ok("repeated Resolve", i.Resolve(e.ctx, key, heldBy(bob, 2), answered("resolved")))
	e.answer(e.claim(key, carol), "resolved")
}

// The operator has decided about the run that she saw, but another run has failed since.
func resolveFenced(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.mine(e.claim(key, bob), 2)
	e.ok("Hold", e.store.Hold(e.ctx, key, bob))
	for _, attempt := range []int{0, 1, 3} {
		e.refused("Resolve of another attempt", i.Resolve(e.ctx, key, heldBy(bob, attempt), answered("resolved")), store.ErrChanged)
		e.refused("Resolve of another attempt", i.Resolve(e.ctx, key, heldBy(bob, attempt), released), store.ErrChanged)
	}
	e.notMine(e.claim(key, carol), store.Held, 2)
}

func resolveNotHeld(e *env) {
	i := e.inspector()
	e.refused("Resolve of an absent record", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")), store.ErrNotFound)
	e.claimed()
	e.refused("Resolve of a live claim", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")), store.ErrChanged)
	e.refused("Resolve of a live claim", i.Resolve(e.ctx, key, heldBy(alice, 1), released), store.ErrChanged)
	e.notMine(e.claim(key, bob), store.Claimed, 1)

	e.ok("Release", e.release(alice))
	e.refused("Resolve of a released record", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")), store.ErrChanged)
	e.refused("Resolve of a released record", i.Resolve(e.ctx, key, heldBy(alice, 1), released), store.ErrChanged)
	e.mine(e.claim(key, bob), 2)
	e.ok("Complete", e.complete(bob, "answer"))
	e.refused("Resolve of a completed record", i.Resolve(e.ctx, key, heldBy(bob, 2), answered("resolved")), store.ErrChanged)
	e.refused("Resolve of a completed record", i.Resolve(e.ctx, key, heldBy(bob, 2), released), store.ErrChanged)
	e.refused("Resolve with the answer of the run", i.Resolve(e.ctx, key, heldBy(bob, 2), answered("answer")), store.ErrChanged)
	e.answer(e.claim(key, carol), "answer")
}

// Once a record is resolved, clients have been told. If the run comes back after all, it
// must not tell them something else.
func resolveLateOwner(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), answered("resolved")))
	e.refused("Complete after Resolve", e.complete(alice, "alice's"), store.ErrNotOwner)
	e.answer(e.claim(key, bob), "resolved")

	e.ok("Forget", i.Forget(e.ctx, key, e.get().Seen()))
	i = e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.refused("Complete after Resolve", e.complete(alice, "alice's"), store.ErrNotOwner)
	e.mine(e.claim(key, bob), 2)
}

// The record was released although its run was not over. If that run comes back before
// anybody else, its answer prevents another run.
func resolveOwnerClaims(e *env) {
	i := e.held()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.mine(e.claim(key, alice), 2)
	e.ok("Complete", e.complete(alice, "alice's"))
	e.answer(e.claim(key, bob), "alice's")
}

// The operator has looked before the record was held, or after it was released. Nothing that
// she saw then speaks of an unknown outcome.
func resolveUnseen(e *env) {
	i := e.held()
	for _, state := range []store.State{
		0, store.Claimed, store.Released, store.Completed, store.Corrupt,
	} {
		seen := store.Seen{Owner: alice, Attempt: 1, State: state}
		e.refused("Resolve of another state", i.Resolve(e.ctx, key, seen, answered("resolved")), store.ErrChanged)
		e.refused("Resolve of another state", i.Resolve(e.ctx, key, seen, released), store.ErrChanged)
	}
	e.notMine(e.claim(key, bob), store.Held, 1)
}

// laterRecords calls f for each way in which a key gets another record, with what was seen of
// the first: attempt 1, held. So is the second, of the same payload.
func (e *env) laterRecords(f func(i store.Inspector, seen store.Seen)) {
	e.t.Helper()
	for name, end := range map[string]func(i store.Inspector, seen store.Seen){
		"forgotten": func(i store.Inspector, seen store.Seen) { e.ok("Forget", i.Forget(e.ctx, key, seen)) },
		"expired":   func(store.Inspector, store.Seen) { e.advance(retention + margin) },
	} {
		i := e.inspector()
		e.claimed(holding, holdEnding)
		e.ok("Hold", e.store.Hold(e.ctx, key, alice))
		seen := e.get().Seen()
		end(i, seen)
		e.mine(e.claim(key, bob), 1)
		e.ok("Hold", e.store.Hold(e.ctx, key, bob))
		f(i, seen)
		r := e.get()
		e.notMine(r, store.Held, 1)
		if r.Owner != bob {
			e.t.Errorf("%s: got the owner %x, want that of the later record", name, r.Owner)
		}
		e.ok("Forget", i.Forget(e.ctx, key, r.Seen()))
	}
}

// An operator has found out what became of one run. Until she says so, the record is gone, and
// another run of the same attempt is held. Nobody knows what became of that one.
func resolveLaterRecord(e *env) {
	e.laterRecords(func(i store.Inspector, seen store.Seen) {
		e.refused("Resolve of a later record", i.Resolve(e.ctx, key, seen, answered("resolved")), store.ErrChanged)
		e.refused("Resolve of a later record", i.Resolve(e.ctx, key, seen, released), store.ErrChanged)
	})
}

// heldWithSteps makes a held record with the steps charge, mail and wire.
func (e *env) heldWithSteps() store.Inspector {
	e.t.Helper()
	i := e.inspector()
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("SaveStep", e.save(alice, "mail", "begun"))
	e.ok("SaveStep", e.save(alice, "wire", "begun"))
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	return i
}

// A mark that stayed would hold the key at the next run. A step that has happened must not
// happen again.
func resolveUndoes(e *env) {
	i := e.heldWithSteps()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), undoing("mail", "begun", "wire", "begun")))
	r := e.get()
	e.notMine(r, store.Released, 1)
	e.steps(r, "charge", "ch_1")
	r = e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "charge", "ch_1")

	e.ok("SaveStep", e.save(bob, "mail", "begun"))
	e.ok("Hold", e.store.Hold(e.ctx, key, bob))
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(bob, 2), answered("resolved")))
	e.steps(e.get(), "charge", "ch_1", "mail", "begun")
}

// The steps are gone when the call is repeated. That is what the first call did.
func resolveUndoneRepeated(e *env) {
	i := e.heldWithSteps()
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), undoing("wire", "begun")))
	e.ok("repeated Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), undoing("wire", "begun")))
	e.steps(e.get(), "charge", "ch_1", "mail", "begun")
	e.refused("Resolve that undoes another step", i.Resolve(e.ctx, key, heldBy(alice, 1), undoing("charge", "ch_1")), store.ErrChanged)
	e.steps(e.claim(key, bob), "charge", "ch_1", "mail", "begun")
}

// The process was only slow, and recorded the result of the step before it lost its claim.
// The operator saw the mark and believes that the step did not happen.
func resolveChangedSteps(e *env) {
	i := e.heldWithSteps()
	for _, s := range []store.Settlement{
		undoing("charge", "begun"), undoing("wire", "begun", "charge", "begun"), undoing("refund", "begun"), undoing("refund", ""),
	} {
		e.refused("Resolve of a step that has changed", i.Resolve(e.ctx, key, heldBy(alice, 1), s), store.ErrChanged)
	}
	e.notMine(e.claim(key, bob), store.Held, 1)
	e.steps(e.get(), "charge", "ch_1", "mail", "begun", "wire", "begun")

	e.ok("Forget", i.Forget(e.ctx, key, heldBy(alice, 1)))
	e.claimed(holding)
	e.ok("SaveStep", e.save(alice, "wire", "begun"))
	e.advance(lease + margin)
	e.ok("SaveStep", e.save(alice, "wire", "w_1"))
	e.refused("Resolve of a step that has happened", i.Resolve(e.ctx, key, heldBy(alice, 1), undoing("wire", "begun")), store.ErrChanged)
	e.steps(e.get(), "wire", "w_1")
}

func forgetHeld(e *env) {
	i := e.held()
	e.ok("Forget", i.Forget(e.ctx, key, heldBy(alice, 1)))
	_, err := i.Get(e.ctx, key)
	e.refused("Get after Forget", err, store.ErrNotFound)
	e.refused("Complete after Forget", e.complete(alice, "answer"), store.ErrNotOwner)
	e.absent()
}

func forgetSettled(e *env) {
	i := e.inspector()
	e.completed("answer")
	e.ok("Forget of a completed record", i.Forget(e.ctx, key, e.get().Seen()))
	e.claimed()
	e.ok("Release", e.release(alice))
	e.ok("Forget of a released record", i.Forget(e.ctx, key, e.get().Seen()))
	e.claimed()
	e.advance(lease + margin)
	e.ok("Forget of a lapsed record", i.Forget(e.ctx, key, e.get().Seen()))
	e.claimed(holding)
	e.advance(lease + margin)
	e.ok("Forget of a lapsed claim that says Hold", i.Forget(e.ctx, key, e.get().Seen()))
	e.absent()
}

func forgetAbsent(e *env) {
	i := e.inspector()
	e.ok("Forget of an absent record", i.Forget(e.ctx, key, heldBy(alice, 1)))
	e.ok("Forget of an absent record", i.Forget(e.ctx, key, corrupt))
	e.completed("answer")
	seen := e.get().Seen()
	e.ok("Forget", i.Forget(e.ctx, key, seen))
	e.ok("repeated Forget", i.Forget(e.ctx, key, seen))
	e.absent()
}

// If a run in flight could be forgotten, the next request would run beside it.
func forgetLive(e *env) {
	i := e.inspector()
	e.claimed()
	e.refused("Forget of a live claim", i.Forget(e.ctx, key, e.get().Seen()), store.ErrChanged)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.ok("Complete", e.complete(alice, "answer"))
}

func forgetFenced(e *env) {
	i := e.inspector()
	e.claimed()
	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
	e.ok("Complete", e.complete(bob, "answer"))
	seen := e.get().Seen()
	for _, attempt := range []int{0, 1, 3} {
		seen.Attempt = attempt
		e.refused("Forget of another attempt", i.Forget(e.ctx, key, seen), store.ErrChanged)
	}
	e.answer(e.claim(key, carol), "answer")
}

// The operator has looked at a held record. Its run has come back since and recorded its
// answer, which is not the operator's to remove.
func forgetUnseen(e *env) {
	i := e.held()
	seen := e.get().Seen()
	e.ok("Complete", e.complete(alice, "answer"))
	e.refused("Forget of another state", i.Forget(e.ctx, key, seen), store.ErrChanged)
	e.refused("Forget of nothing that was seen", i.Forget(e.ctx, key, store.Seen{}), store.ErrChanged)
	e.refused("Forget of no state", i.Forget(e.ctx, key, store.Seen{Owner: alice, Attempt: 1}), store.ErrChanged)
	e.answer(e.claim(key, bob), "answer")
}

// The operator has found out that one run did nothing. She does not know of the next one.
func forgetLaterRecord(e *env) {
	e.laterRecords(func(i store.Inspector, seen store.Seen) {
		e.refused("Forget of a later record", i.Forget(e.ctx, key, seen), store.ErrChanged)
	})
}

// corrupt is what somebody has seen of a record that cannot be read.
var corrupt = store.Seen{State: store.Corrupt}

// That a record cannot be read is something to have seen, too, and not a way around looking.
func forgetSound(e *env) {
	i := e.inspector()
	e.completed("answer")
	for _, attempt := range []int{0, 1} {
		seen := corrupt
		seen.Attempt = attempt
		e.refused("Forget as corrupt", i.Forget(e.ctx, key, seen), store.ErrChanged)
	}
	e.answer(e.claim(key, bob), "answer")
}

// Nobody knows what the attempt did that was resolved, only that it did not do everything.
func resolveNotBlank(e *env) {
	i := e.inspector()
	e.claimed(holding)
	e.advance(lease + margin)
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	e.undo(carol, 2)
	e.stays(2)
}
