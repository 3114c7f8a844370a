package idempotency_test

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		// Keys are made when they are sent: those of a network are in the cache too.
		key := func(i int) string { return "live-" + strconv.Itoa(i) }
		churn := guard.With(expiring).Handler(l)
		filled := false
		fill := func() {
			for i := range live {
				if !filled {
					c.send(h, key(i))
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
				c.send(h, key(i*7919%live))
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

// BenchmarkExpiries is the steady state of a service whose records come, stay for their
// time and go: each first run finds one that has just expired and is the oldest of all.
// The time is as long as half a million requests take, so that as many are live. What is
// to be seen is not the mean but the longest: nothing may stop for a sweep.
func BenchmarkExpiries(b *testing.B) {
	const warm = 500_000
	store := idempotency.NewMemoryStore(idempotency.WithMaxEntries(100_000_000))
	l := smallLoad
	l.out = l.out[:128]
	guard, err := idempotency.New(store, idempotency.SharedScope)
	require.NoError(b, err)
	c := newCaller(l)
	fill := func(ttl time.Duration) time.Duration {
		h, start := guard.With(idempotency.WithTTL(ttl)).Handler(l), time.Now()
		for range warm {
			c.send(h, freshKey())
		}
		return time.Since(start)
	}
	ttl := fill(time.Millisecond)
	fill(ttl)
	h := guard.With(idempotency.WithTTL(ttl)).Handler(l)
	var times []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		key, start := freshKey(), time.Now()
		c.send(h, key)
		times = append(times, time.Since(start))
	}
	b.ReportMetric(float64(store.Len()), "live")
	slices.Sort(times)
	for name, i := range map[string]int{"p50": len(times) / 2, "p99": len(times) * 99 / 100, "max": len(times) - 1} {
		b.ReportMetric(float64(times[i].Nanoseconds()), name+"-ns")
	}
}

// BenchmarkStorm sends one new request a thousand times at once: one run, and for all
// others a refusal or the answer.
func BenchmarkStorm(b *testing.B) {
	const storm = 1000
	h := benchGuard(b, smallLoad)
	callers := make([]*caller, storm)
	for i := range callers {
		callers[i] = newCaller(smallLoad)
	}
	for b.Loop() {
		key := freshKey()
		start := make(chan struct{})
		var all sync.WaitGroup
		var runs, refusals atomic.Int64
		for _, c := range callers {
			all.Go(func() {
				<-start
				switch c.send(h, key) {
				case http.StatusConflict:
					refusals.Add(1)
				case http.StatusCreated:
					if c.w.header.Get("Idempotent-Replayed") == "" {
						runs.Add(1)
					}
				}
			})
		}
		close(start)
		all.Wait()
		if runs.Load() != 1 {
			b.Fatalf("%d runs", runs.Load())
		}
		b.ReportMetric(float64(refusals.Load()), "refusals")
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/storm, "ns/request")
}
