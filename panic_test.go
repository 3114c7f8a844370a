package idempotency_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// The tests of this file let functions of the program end a goroutine of the guard in the
// middle. What that goroutine held must not stay behind.

// unwindings are the ways to leave a function without returning from it.
var unwindings = map[string]func(){
	"panic":  func() { panic("expected by the test") },
	"goexit": runtime.Goexit,
}

// unwindingAt sets an observer that unwinds when it is first told that a store call of that
// kind has failed.
func unwindingAt(op string, unwind func()) idempotency.Option {
	var told atomic.Bool
	return idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
		if e.Op == op && told.CompareAndSwap(false, true) {
			unwind()
		}
	})
}

// unwound runs f in a goroutine of its own, and returns when that has ended or is waiting.
// In a bubble.
func unwound(f func()) {
	go func() {
		defer func() { _ = recover() }()
		f()
	}()
	synctest.Wait()
}

// The one who leads a wait is lost: another of those who wait leads on, and its place in
// the room is given back.
func TestLeaderThatIsLostIsReplaced(t *testing.T) {
	t.Parallel()
	for name, unwind := range unwindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(20*time.Second, "done")
				p, store := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute),
					unwindingAt("watch", unwind))
				err := error(errDown)
				store.watchFault.Store(&err)
				allThere := make(chan struct{})
				store.beforeWatch = func() { <-allThere }

				owner := p.start(t, call{key: "k"})
				unwound(func() { _, _ = p.try(t.Context(), call{key: "k"}) })
				replies := p.waiters(t, 3, call{key: "k"})
				close(allThere)
				start := time.Now()
				require.Equal(t, "done", (<-owner).body)
				for range 3 {
					require.Equal(t, "done", (<-replies).body)
				}
				require.LessOrEqual(t, time.Since(start), 21*time.Second)
				synctest.Wait()
				require.Zero(t, p.guard.Waiting())
			})
		})
	}
}

// A claim whose reply never came is given back also if the request that made it is lost.
func TestClaimOfALostRequestIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, unwind := range unwindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(0, "done")
				p := newProcess(t, idempotency.NewMemoryStore(), h, unwindingAt("claim", unwind))
				p.store.on("claim", first(1, loseReply))
				unwound(func() { _, _ = p.try(t.Context(), call{key: "k"}) })
				require.Equal(t, "done", p.do(t, call{key: "k"}).body)
			})
		})
	}
}

// A run that is lost while it is being settled blocks its key for no longer than a lease.
func TestKeyOfALostRunLapses(t *testing.T) {
	t.Parallel()
	for name, unwind := range unwindings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := answering(0, "done")
				p := newProcess(t, idempotency.NewMemoryStore(), h, unwindingAt("complete", unwind))
				p.store.on("complete", first(1, refuse))
				unwound(func() { _, _ = p.try(t.Context(), call{key: "k"}) })
				time.Sleep(leaseTime)
				require.Equal(t, "done", p.do(t, call{key: "k"}).body)
				p.requireQuiet(t)
			})
		})
	}
}
