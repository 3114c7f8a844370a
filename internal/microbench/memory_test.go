package microbench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
)

// BenchmarkMemoryStore shows that the number of live keys does not change the cost of a
// call.
func BenchmarkMemoryStore(b *testing.B) {
	for _, live := range []int{1_000, 10_000, 100_000, 1_000_000} {
		keys := guardtest.MemoryKeys(2 * live)
		answer := make([]byte, 512)
		// filled returns a store in which the first half of the keys is completed.
		filled := func(b *testing.B) *idempotency.MemoryStore {
			b.Helper()
			s := idempotency.NewMemoryStore(idempotency.WithMaxEntries(4*live), idempotency.WithMaxBytes(1<<40))
			for i, key := range keys[:live] {
				c := guardtest.MemoryClaim(uint64(i))
				if _, err := s.Claim(b.Context(), key, c); err != nil {
					b.Fatal(err)
				}
				if err := s.Complete(b.Context(), key, c.Owner, store.Completion{Answer: answer, TTL: 24 * time.Hour}); err != nil {
					b.Fatal(err)
				}
			}
			runtime.GC() // Or the collection that the filling began is measured too.
			b.ReportAllocs()
			b.ResetTimer()
			return s
		}
		// run claims a new key, completes it, and forgets an old one in its place.
		run := func(b *testing.B, s *idempotency.MemoryStore, i int) {
			b.Helper()
			c, key, old := guardtest.MemoryClaim(uint64(i)), keys[(live+i)%len(keys)], keys[i%len(keys)]
			if r, err := s.Claim(b.Context(), key, c); err != nil || !r.Mine {
				b.Fatal(r, err)
			}
			if err := s.Complete(b.Context(), key, c.Owner, store.Completion{Answer: answer, TTL: 24 * time.Hour}); err != nil {
				b.Fatal(err)
			}
			n := i // which claim has made the old one
			if i >= live {
				n -= live
			}
			if err := s.Forget(b.Context(), old, store.Seen{Owner: guardtest.MemoryClaim(uint64(n)).Owner, Attempt: 1, State: store.Completed}); err != nil {
				b.Fatal(err)
			}
		}
		replay := func(b *testing.B, s *idempotency.MemoryStore, i int) {
			b.Helper()
			r, err := s.Claim(b.Context(), keys[i%live], guardtest.MemoryClaim(1<<40))
			if err != nil || r.State != store.Completed {
				b.Fatal(r, err)
			}
		}
		b.Run(fmt.Sprintf("run/live=%d", live), func(b *testing.B) {
			s := filled(b)
			defer reportCPU(b)()
			for i := 0; b.Loop(); i++ {
				run(b, s, i)
			}
		})
		b.Run(fmt.Sprintf("replay/live=%d", live), func(b *testing.B) {
			s := filled(b)
			defer reportCPU(b)()
			for i := 0; b.Loop(); i++ {
				replay(b, s, i*7919)
			}
		})
		b.Run(fmt.Sprintf("replay-parallel/live=%d", live), func(b *testing.B) {
			s := filled(b)
			defer reportCPU(b)()
			var worker atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(worker.Add(1)) * 104729; pb.Next(); i++ {
					replay(b, s, i*7919)
				}
			})
		})
	}
}
