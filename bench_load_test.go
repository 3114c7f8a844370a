package idempotency_test

import (
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
)

// BenchmarkParallel is to be run with -cpu 1,2,4: what one core does, two do twice,
// unless requests get in each other's way.
func BenchmarkParallel(b *testing.B) {
	parallel := func(b *testing.B, send func(c *caller)) {
		b.Helper()
		b.ReportAllocs()
		defer reportCPU(b)()
		b.RunParallel(func(pb *testing.PB) {
			for c := newCaller(smallLoad); pb.Next(); {
				send(c)
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		h := http.Handler(smallLoad)
		parallel(b, func(c *caller) { c.send(h, "") })
	})
	b.Run("first", func(b *testing.B) {
		h := benchGuard(b, smallLoad, expiring)
		parallel(b, func(c *caller) { c.send(h, freshKey()) })
	})
	b.Run("replay", func(b *testing.B) {
		h := benchGuard(b, smallLoad)
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = freshKey()
			newCaller(smallLoad).send(h, keys[i])
		}
		var n atomic.Int64
		parallel(b, func(c *caller) { c.send(h, keys[n.Add(1)%int64(len(keys))]) })
	})
	b.Run("replay of one key", func(b *testing.B) {
		h := benchGuard(b, smallLoad)
		newCaller(smallLoad).send(h, "k")
		parallel(b, func(c *caller) { c.send(h, "k") })
	})
}

// BenchmarkLiveKeys shows what a request costs among many records: what differs is the
// caches of the processor, which hold few of them, and the garbage collector, which has
// to look at all.
func BenchmarkLiveKeys(b *testing.B) {
	for _, live := range []int{1_000, 10_000, 100_000, 1_000_000} {
		guard, err := idempotency.New(idempotency.NewMemoryStore(idempotency.WithMaxEntries(2*live+10_000_000)), idempotency.SharedScope)
		require.NoError(b, err)
		l := smallLoad
		l.out = l.out[:128]
		h, c := guard.Handler(l), newCaller(l)
		keys := make([]string, live)
		for i := range keys {
			keys[i] = freshKey()
		}
		churn := guard.With(expiring).Handler(l)
		filled := false
		fill := func() {
			for _, key := range keys {
				if !filled {
					c.send(h, key)
				}
			}
			filled = true
			runtime.GC()
		}
		b.Run(fmt.Sprintf("replay/live=%d", live), func(b *testing.B) {
			fill()
			b.ReportAllocs()
			defer reportCPU(b)()
			for i := 0; b.Loop(); i++ {
				c.send(h, keys[i*7919%live])
			}
		})
		b.Run(fmt.Sprintf("first/live=%d", live), func(b *testing.B) {
			fill()
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				c.send(churn, freshKey())
			}
		})
	}
}
