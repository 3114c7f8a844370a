package storetest

import (
	"fmt"

	"example.com/idempotency/store"
)

var stepCases = []testCase{
	// This is what steps are for: the run died after its charge, and the next run must not
	// charge again.
	{"Step/is known to the run that takes over", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1", "mail", "sent")
		e.advance(lease + margin)
		e.claim(bob).mine(2).steps("charge", "ch_1", "mail", "sent")

		e.save(bob, "invoice", "in_1")
		e.advance(lease + margin)
		e.claim(carol).mine(3).steps("charge", "ch_1", "mail", "sent", "invoice", "in_1")
	}},
	{"Step/is known to the run after a release", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1")
		e.release(alice)
		e.claim(bob).mine(2).steps("charge", "ch_1")
	}},
	// The operator who resolves a held record decides about the step that was in doubt. The
	// other steps have happened.
	{"Step/is known to the run after a resolution", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1")
		e.hold(alice)
		e.get().steps("charge", "ch_1")
		e.resolve(heldBy(alice, 1), released)
		e.claim(bob).mine(2).steps("charge", "ch_1")
	}},
	// The lost reply may be the one with the steps.
	{"Step/is known to a claim that is repeated", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1")
		e.release(alice)
		e.claim(bob).mine(2)
		e.claim(bob).mine(2).steps("charge", "ch_1")
	}},
	// A run may do several things at once.
	{"Step/fifty at once are all kept", func(e *env) {
		e.claimed()
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprintf("step %d", i), fmt.Sprintf("value %d", i))
		}
		e.save(alice, "first", "") // skips here if the store has no steps, and not in another goroutine
		e.concurrently(50, func(i int) error {
			return e.store.(store.StepStore).SaveStep(e.ctx, e.key, alice, want[2*i], []byte(want[2*i+1]))
		})
		e.release(alice)
		e.claim(bob).steps(append(want, "first", "")...)
	}},
	{"Step/is replaced by name", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "started")
		e.save(alice, "charge", "ch_1")
		e.save(alice, "charge", "ch_1")
		e.release(alice)
		e.claim(bob).steps("charge", "ch_1")
	}},
	// Names and values mean nothing to a store, even if they look like names that the store
	// itself uses.
	{"Step/is opaque", func(e *env) {
		e.claimed()
		want := []string{
			"charge", "", "m", "metadata", "r", "answer", "w", "1", "owner", "x", "attempt", "9",
			"a:b\x00c\r\n", "\x00\xff\r\n", "ß 支払い", "\xc3\x28",
		}
		e.save(alice, want...)
		e.claim(bob).claimed(1)
		e.advance(lease + margin)
		e.claim(bob).mine(2).steps(want...)
	}},
	// As long as nobody else runs, what has happened is worth recording, as with Complete.
	{"Step/after the lease is accepted", func(e *env) {
		e.lapsed()
		e.save(alice, "charge", "ch_1")
		e.claim(bob).steps("charge", "ch_1")
	}},
	// A paused run comes back and saves a step of long ago over the step of the newer run.
	{"Step/after a takeover is refused", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1")
		e.advance(lease + margin)
		e.claim(bob).mine(2)
		e.save(bob, "charge", "ch_2")
		e.refused(store.ErrNotOwner).save(alice, "charge", "ch_3")
		e.release(bob)
		e.claim(carol).steps("charge", "ch_2")
	}},
	{"Step/by another owner is refused", func(e *env) {
		e.claimed()
		e.refused(store.ErrNotOwner).save(bob, "charge", "ch_1")
		e.release(alice)
		e.claim(carol).steps()
	}},
	// The run is over. What follows was decided without the step.
	{"Step/without a claim is refused", func(e *env) {
		e.refused(store.ErrNotOwner).save(alice, "charge", "ch_1")
		e.released()
		e.refused(store.ErrNotOwner).save(alice, "charge", "ch_1")
		e.claim(bob).mine(2).steps()
		e.hold(bob)
		e.refused(store.ErrNotOwner).save(bob, "charge", "ch_1")
		e.complete(bob, "answer")
		e.refused(store.ErrNotOwner).save(bob, "charge", "ch_1")
		e.claim(carol).answer("answer")
	}},
	// The next record of the key is another intent. A step of the earlier record would make
	// its run skip its own charge.
	{"Step/ends with its record", func(e *env) {
		e.claimed()
		e.save(alice, "charge", "ch_1")
		e.advance(retention + margin)
		e.absent()
		e.release(bob)
		e.claim(carol, mismatching).mine(2).steps()
	}},
	// Only Renew moves the lease, because the run counts its own deadline from a renewal.
	{"Step/does not prolong the lease", func(e *env) {
		e.claimed()
		e.advance(lease - margin)
		e.save(alice, "charge", "ch_1")
		e.advance(2 * margin)
		e.claim(bob).mine(2)
	}},
	// The step was saved, whatever its run says of itself.
	{"Step/outlives a release that says that nothing was done", func(e *env) {
		e.claim(carol).mine(1)
		e.save(carol, "a", "1")
		e.release(carol, undone)
		e.stays(1)
		e.claim(bob).mine(2).steps("a", "1")
	}},
	// See contextCases for the same with other calls.
	{"Step/a cancelled SaveStep can be repeated", func(e *env) {
		e.claimed()
		e.cancelled().save(alice, "charge", "ch_1")
		e.save(alice, "charge", "ch_1")
		e.release(alice)
		e.claim(bob).steps("charge", "ch_1")
	}},
}
