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
				var told atomic.Int64
				p, store := newWatchingProcess(t, idempotency.NewMemoryStore(), h, idempotency.WithWait(time.Minute),
					idempotency.WithObserver(func(_ context.Context, e idempotency.Event) {
						if e.Op == "watch" && told.Add(1) == 1 {
							unwind()
						}
					}))
				err := error(errDown)
				store.watchFault.Store(&err)
				allThere := make(chan struct{})
				store.beforeWatch = func() { <-allThere }

				owner := p.start(t, call{key: "k"})
				unwound(func() { _, _ = p.try(t.Context(), call{key: "k"}) })
				replies := p.waiters(t, 3, call{key: "k"})
				require.Zero(t, told.Load())
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
