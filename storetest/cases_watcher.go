package storetest

import (
	"fmt"
	"sync"
	"time"

	"example.com/idempotency/store"
)

func watcherCases() []testCase {
	return []testCase{
		{"Watch/is woken by Complete", watchComplete},
		{"Watch/is woken by Release", watchRelease},
		{"Watch/is woken by Hold", watchHold},
		{"Watch/is woken by Resolve", watchResolve},
		{"Watch/is woken each time", watchEachTime},
		{"Watch/a watcher that does not look blocks nobody", watchIdle},
		{"Watch/every watcher is woken", watchAll},
		{"Watch/a stopped watcher does not end another", watchStop},
		{"Watch/no settling is missed", watchRace},
	}
}

// watch watches the key until the case ends, or skips the case if the store cannot.
func (e *env) watch(key string) (settled <-chan struct{}, stop func()) {
	e.t.Helper()
	w, ok := e.store.(store.Watcher)
	if !ok {
		e.t.Skip("the store is not an idempotency.Watcher")
	}
	settled, stop, err := w.Watch(e.ctx, key)
	e.ok("Watch", err)
	e.t.Cleanup(stop)
	return settled, stop
}

// woken reports whether a value comes within the kit's patience.
func woken(settled <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-settled:
		return true
	case <-timer.C:
		return false
	}
}

// wakes fails the case unless each channel gets a value.
func (e *env) wakes(after string, settled ...<-chan struct{}) {
	e.t.Helper()
	for i, c := range settled {
		if !woken(c) {
			e.t.Fatalf("watcher %d was not woken by %s", i+1, after)
		}
	}
}

// The watcher looks at its channel only after the record has settled. A value that is sent
// only to those who are receiving at that moment would be lost.
func watchComplete(e *env) {
	settled, _ := e.watch(key)
	e.claimed()
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Complete", e.complete(alice, "answer"))
	e.wakes("Complete", settled)
	e.answer(e.claim(key, bob, watching), "answer")
}

func watchRelease(e *env) {
	settled, _ := e.watch(key)
	e.claimed()
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Release", e.release(alice))
	e.wakes("Release", settled)
	e.notMine(e.claim(key, bob, watching), store.Released, 1)
}

func watchHold(e *env) {
	settled, _ := e.watch(key)
	e.claimed()
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Hold", e.store.Hold(e.ctx, key, alice))
	e.wakes("Hold", settled)
	e.notMine(e.claim(key, bob, watching), store.Held, 1)
}

// The run died while others wait for it, and an operator settles the record. That is a
// completion or a release like any other.
func watchResolve(e *env) {
	i := e.inspector()
	for name, settlement := range map[string]store.Settlement{"completed": answered("resolved"), "released": released} {
		key := keyOf(name + " by hand")
		settled, _ := e.watch(key)
		e.mine(e.claim(key, alice, holding), 1)
		e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
		e.advance(lease + margin)
		e.ok("Resolve", i.Resolve(e.ctx, key, heldBy(alice, 1), settlement))
		e.wakes("Resolve", settled)
	}
}

// A request that has not waited gets the released key. Those that wait for it go on, with the same
// registration.
func watchEachTime(e *env) {
	settled, _ := e.watch(key)
	e.claimed()
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Release", e.release(alice))
	e.wakes("Release", settled)
	e.mine(e.claim(key, carol), 2)
	e.notMine(e.claim(key, bob, watching), store.Claimed, 2)
	e.ok("Complete", e.complete(carol, "answer"))
	e.wakes("Complete by the next owner", settled)
}

// A watcher may be slow, or it may not have called stop yet although its request is over.
// Values that it has not seen are merged, and the run that settles does not wait for it.
func watchIdle(e *env) {
	e.watch(key)
	e.claimed()
	for attempt := 1; attempt <= 5; attempt++ {
		e.notMine(e.claim(key, carol, watching), store.Claimed, attempt)
		owner, next := alice, bob
		if attempt%2 == 0 {
			owner, next = next, owner
		}
		released := make(chan error, 1)
		go func() { released <- e.release(owner) }()
		select {
		case err := <-released:
			e.ok("Release", err)
		case <-time.After(patience):
			e.t.Fatalf("Release waits for a watcher")
		}
		e.mine(e.claim(key, next), attempt+1)
	}
}

func watchAll(e *env) {
	e.claimed()
	first, _ := e.watch(key)
	second, _ := e.watch(key)
	third, _ := e.watch(key)
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Complete", e.complete(alice, "answer"))
	e.wakes("Complete", first, second, third)
}

// A watcher may stop twice, once by a defer and once by hand. That must not stop another
// watcher.
func watchStop(e *env) {
	e.claimed()
	before, _ := e.watch(key)
	_, stop := e.watch(key)
	after, _ := e.watch(key)
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	stop()
	stop()
	e.ok("Complete", e.complete(alice, "answer"))
	e.wakes("Complete", before, after)
}

// Watch first, then claim. No matter when the record settles, either the claim sees that it
// has, or the watcher is woken.
func watchRace(e *env) {
	e.watch(key)
	w := e.store.(store.Watcher)
	const n = 100
	for i := range n {
		e.mine(e.claim(keyOf(fmt.Sprint(i)), alice), 1)
	}
	missed := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		key := keyOf(fmt.Sprint(i))
		wg.Go(func() {
			missed[i] = func() error {
				settled, stop, err := w.Watch(e.ctx, key)
				if err != nil {
					return err
				}
				defer stop()
				for {
					r, err := e.store.Claim(e.ctx, key, store.Claim{
						Owner: bob, Fingerprint: payload, Lease: lease, Retention: retention, Watch: true,
					})
					if err != nil || r.State == store.Completed {
						return err
					}
					if !woken(settled) {
						return fmt.Errorf("key %d settled, and its watcher was not woken", i)
					}
				}
			}()
		})
		wg.Go(func() {
			if err := e.store.Complete(e.ctx, key, alice, completion("answer")); err != nil {
				e.t.Errorf("Complete: unexpected error: %v", err)
			}
		})
	}
	wg.Wait()
	for _, err := range missed {
		if err != nil {
			e.t.Error(err)
		}
	}
}
