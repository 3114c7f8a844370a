package storetest

import (
	"fmt"
	"maps"

	"example.com/idempotency/store"
)

func stepCases() []testCase {
	return []testCase{
		{"Step/is known to the run that takes over", stepTakeover},
		{"Step/is known to the run after a release", stepRelease},
		{"Step/is known to the run after a resolution", stepResolve},
		{"Step/is known to a claim that is repeated", stepClaimAgain},
		{"Step/fifty at once are all kept", stepParallel},
		{"Step/is replaced by name", stepReplaced},
		{"Step/is opaque", stepOpaque},
		{"Step/after the lease is accepted", stepLapsed},
		{"Step/after a takeover is refused", stepTakenOver},
		{"Step/by another owner is refused", stepOther},
		{"Step/without a claim is refused", stepNotClaimed},
		{"Step/ends with its record", stepExpiry},
		{"Step/does not prolong the lease", stepLease},
		{"Step/outlives a release that says that nothing was done", stepUndone},
		{"Step/a cancelled SaveStep can be repeated", stepCancelled},
	}
}

// save saves a step of the key as o.
func (e *env) save(o store.Owner, name, value string) error {
	e.t.Helper()
	return e.stepStore().SaveStep(e.ctx, key, o, name, []byte(value))
}

// stepStore returns the store as a StepStore, or skips the case.
func (e *env) stepStore() store.StepStore {
	e.t.Helper()
	s, ok := e.store.(store.StepStore)
	if !ok {
		e.t.Skip("the store is not an idempotency.StepStore")
	}
	return s
}

// steps fails the case unless the record has exactly these steps, given as names and
// values in turn.
func (e *env) steps(r store.Record, want ...string) {
	e.t.Helper()
	got := make(map[string]string)
	for name, value := range r.Steps {
		got[name] = string(value)
	}
	wanted := make(map[string]string)
	for i := 0; i < len(want); i += 2 {
		wanted[want[i]] = want[i+1]
	}
	if !maps.Equal(got, wanted) {
		e.t.Fatalf("steps: got %q, want %q", got, wanted)
	}
}

// This is what steps are for: the run died after its charge, and the next run must not
// charge again.
func stepTakeover(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("SaveStep", e.save(alice, "mail", "sent"))
	e.advance(lease + margin)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "charge", "ch_1", "mail", "sent")

	e.ok("SaveStep", e.save(bob, "invoice", "in_1"))
	e.advance(lease + margin)
	r = e.claim(key, carol)
	e.mine(r, 3)
	e.steps(r, "charge", "ch_1", "mail", "sent", "invoice", "in_1")
}

func stepRelease(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("Release", e.release(alice))
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "charge", "ch_1")
}

// The operator who resolves a held record decides about the step that was in doubt. The
// other steps have happened.
func stepResolve(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	i := e.inspector()
	e.steps(e.get(), "charge", "ch_1")
	e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), released))
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "charge", "ch_1")
}

// A run may do several things at once.
func stepParallel(e *env) {
	e.claimed()
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("step %d", i), fmt.Sprintf("value %d", i))
	}
	e.ok("SaveStep", e.save(alice, "first", "")) // skips here if the store has no steps, and not in another goroutine
	e.concurrently(50, func(i int) (store.Record, error) {
		return store.Record{}, e.save(alice, want[2*i], want[2*i+1])
	})
	e.ok("Release", e.release(alice))
	e.steps(e.claim(key, bob), append(want, "first", "")...)
}

// The lost reply may be the one with the steps.
func stepClaimAgain(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "charge", "ch_1")
}

func stepReplaced(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "started"))
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("repeated SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("Release", e.release(alice))
	e.steps(e.claim(key, bob), "charge", "ch_1")
}

// Names and values mean nothing to a store, even if they look like names that the store
// itself uses.
func stepOpaque(e *env) {
	e.claimed()
	want := []string{
		"charge", "", "m", "metadata", "r", "answer", "w", "1", "owner", "x", "attempt", "9",
		"a:b\x00c\r\n", "\x00\xff\r\n", "ß 支払い", "\xc3\x28",
	}
	for i := 0; i < len(want); i += 2 {
		e.ok("SaveStep", e.save(alice, want[i], want[i+1]))
	}
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.advance(lease + margin)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, want...)
}

// As long as nobody else runs, what has happened is worth recording, as with Complete.
func stepLapsed(e *env) {
	e.claimed()
	e.advance(lease + margin)
	e.ok("SaveStep after the lease", e.save(alice, "charge", "ch_1"))
	e.steps(e.claim(key, bob), "charge", "ch_1")
}

// A paused run comes back and saves a step of long ago over the step of the newer run.
func stepTakenOver(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.ok("SaveStep", e.save(bob, "charge", "ch_2"))
	e.refused("SaveStep after a takeover", e.save(alice, "charge", "ch_3"), store.ErrNotOwner)
	e.ok("Release", e.release(bob))
	e.steps(e.claim(key, carol), "charge", "ch_2")
}

func stepOther(e *env) {
	e.claimed()
	e.refused("SaveStep by another owner", e.save(bob, "charge", "ch_1"), store.ErrNotOwner)
	e.ok("Release", e.release(alice))
	e.steps(e.claim(key, carol))
}

// The run is over. What follows was decided without the step.
func stepNotClaimed(e *env) {
	e.refused("SaveStep of an absent record", e.save(alice, "charge", "ch_1"), store.ErrNotOwner)
	e.claimed()
	e.ok("Release", e.release(alice))
	e.refused("SaveStep of a released record", e.save(alice, "charge", "ch_1"), store.ErrNotOwner)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r)
	e.ok("Hold", e.store.Hold(e.ctx, key, bob))
	e.refused("SaveStep of a held record", e.save(bob, "charge", "ch_1"), store.ErrNotOwner)
	e.ok("Complete", e.complete(bob, "answer"))
	e.refused("SaveStep of a completed record", e.save(bob, "charge", "ch_1"), store.ErrNotOwner)
	e.answer(e.claim(key, carol), "answer")
}

// The next record of the key is another intent. A step of the earlier record would make
// its run skip its own charge.
func stepExpiry(e *env) {
	e.claimed()
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.advance(retention + margin)
	e.absent()
	e.ok("Release", e.release(bob))
	r := e.claim(key, carol, mismatching)
	e.mine(r, 2)
	e.steps(r)
}

// Only Renew moves the lease, because the run counts its own deadline from a renewal.
func stepLease(e *env) {
	e.claimed()
	e.advance(lease - margin)
	e.ok("SaveStep", e.save(alice, "charge", "ch_1"))
	e.advance(2 * margin)
	e.mine(e.claim(key, bob), 2)
}

// See contextCases for the same with other calls.
func stepCancelled(e *env) {
	s := e.stepStore()
	e.claimed()
	e.unknown("SaveStep", s.SaveStep(e.cancelled(), key, alice, "charge", []byte("ch_1")))
	e.ok("repeated SaveStep", e.save(alice, "charge", "ch_1"))
	e.ok("Release", e.release(alice))
	e.steps(e.claim(key, bob), "charge", "ch_1")
}

// The step was saved, whatever its run says of itself.
func stepUndone(e *env) {
	e.stepStore()
	e.mine(e.claim(key, carol), 1)
	e.ok("SaveStep", e.save(carol, "a", "1"))
	e.ok("Release", e.store.Release(e.ctx, key, carol, undone))
	e.stays(1)
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "a", "1")
}
