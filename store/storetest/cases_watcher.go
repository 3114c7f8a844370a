package storetest

import (
	"fmt"
	"time"

	"example.com/idempotency/store"
)

var watcherCases = []testCase{
	// The watcher looks at its channel only after the record has settled. A value that is sent
	// only to those who are receiving at that moment would be lost.
	{"Watch/is woken by Complete", func(e *env) {
		settled, _ := e.watch()
		e.claimed()
		e.claim(bob, watching).claimed(1)
		e.complete(alice, "answer")
		e.wakes(settled)
		e.claim(bob, watching).answer("answer")
	}},
	{"Watch/is woken by Release", func(e *env) {
		settled, _ := e.watch()
		e.claimed()
		e.claim(bob, watching).claimed(1)
		e.release(alice)
		e.wakes(settled)
		e.claim(bob, watching).released(1)
	}},
	{"Watch/is woken by Hold", func(e *env) {
		settled, _ := e.watch()
		e.claimed()
		e.claim(bob, watching).claimed(1)
		e.hold(alice)
		e.wakes(settled)
		e.claim(bob, watching).held(1)
	}},
	// The run died while others wait for it, and an operator settles the record. That is a
	// completion or a release like any other.
	{"Watch/is woken by Resolve", func(e *env) {
		for name, settlement := range map[string]store.Settlement{"completed": answered("resolved"), "released": released} {
			e := e.on(name + " by hand")
			settled, _ := e.watch()
			e.claimed(holding)
			e.claim(bob, watching).claimed(1)
			e.advance(lease + margin)
			e.resolve(heldBy(alice, 1), settlement)
			e.wakes(settled)
		}
	}},
	// A request that has not waited gets the released key. Those that wait for it go on, with the same
	// registration.
	{"Watch/is woken each time", func(e *env) {
		settled, _ := e.watch()
		e.claimed()
		e.claim(bob, watching).claimed(1)
		e.release(alice)
		e.wakes(settled)
		e.claim(carol).mine(2)
		e.claim(bob, watching).claimed(2)
		e.complete(carol, "answer")
		e.wakes(settled)
	}},
	// A watcher may be slow, or it may not have called stop yet although its request is over.
	// Values that it has not seen are merged, and the run that settles does not wait for it.
	{"Watch/a watcher that does not look blocks nobody", func(e *env) {
		e.watch()
		e.claimed()
		for attempt := 1; attempt <= 5; attempt++ {
			e.claim(carol, watching).claimed(attempt)
			owner, next := alice, bob
			if attempt%2 == 0 {
				owner, next = next, owner
			}
			released := make(chan error, 1)
			go func() { released <- e.store.Release(e.ctx, e.key, owner, store.Release{}) }()
			select {
			case err := <-released:
				e.returned("Release", err)
			case <-time.After(patience):
				e.t.Fatalf("Release waits for a watcher")
			}
			e.claim(next).mine(attempt + 1)
		}
	}},
	{"Watch/every watcher is woken", func(e *env) {
		e.claimed()
		first, _ := e.watch()
		second, _ := e.watch()
		third, _ := e.watch()
		e.claim(bob, watching).claimed(1)
		e.complete(alice, "answer")
		e.wakes(first, second, third)
	}},
	// A watcher may stop twice, once by a defer and once by hand. That must not stop another
	// watcher.
	{"Watch/a stopped watcher does not end another", func(e *env) {
		e.claimed()
		before, _ := e.watch()
		_, stop := e.watch()
		after, _ := e.watch()
		e.claim(bob, watching).claimed(1)
		stop()
		stop()
		e.complete(alice, "answer")
		e.wakes(before, after)
	}},
	// Watch first, then claim. No matter when the record settles, either the claim sees that it
	// has, or the watcher is woken.
	{"Watch/no settling is missed", func(e *env) {
		e.watch()
		const n = 100
		for i := range n {
			e.on(fmt.Sprint(i)).claimed()
		}
		e.concurrently(2*n, func(i int) error {
			e := e.on(fmt.Sprint(i / 2))
			if i%2 == 1 {
				return e.store.Complete(e.ctx, e.key, alice, completion("answer"))
			}
			settled, stop, err := e.store.(store.Watcher).Watch(e.ctx, e.key)
			if err != nil {
				return err
			}
			defer stop()
			for {
				r, err := e.store.Claim(e.ctx, e.key, claimOf(bob, watching))
				if err != nil || r.State == store.Completed {
					return err
				}
				if !woken(settled) {
					return fmt.Errorf("key %d settled, and its watcher was not woken", i/2)
				}
			}
		})
	}},
}
