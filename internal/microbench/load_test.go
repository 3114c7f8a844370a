package microbench

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
	"example.com/idempotency/internal/load"
)

// reportCPU returns a function that reports the processor time of each operation since then.
func reportCPU(b *testing.B) func() {
	b.Helper()
	before := load.CPUTime()
	return func() {
		b.Helper()
		b.ReportMetric(float64((load.CPUTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	}
}

// BenchmarkParallel is for -cpu 1,2,4: two cores do twice the work of one, unless requests
// get in each other's way.
func BenchmarkParallel(b *testing.B) {
	parallel := func(b *testing.B, send func(c *load.Caller)) {
		b.Helper()
		b.ReportAllocs()
		defer reportCPU(b)()
		b.RunParallel(func(pb *testing.PB) {
			for c := load.NewCaller(load.Small); pb.Next(); {
				send(c)
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		h := http.Handler(load.Small)
		parallel(b, func(c *load.Caller) { c.Send(h, "") })
	})
	b.Run("first", func(b *testing.B) {
		h := benchGuard(b, load.Small, expiring)
		parallel(b, func(c *load.Caller) { c.Send(h, load.Key()) })
	})
	b.Run("replay", func(b *testing.B) {
		h := benchGuard(b, load.Small)
		keys := load.Keys(1000)
		for i := range keys {
			load.NewCaller(load.Small).Send(h, keys[i])
		}
		var n atomic.Int64
		parallel(b, func(c *load.Caller) { c.Send(h, keys[n.Add(1)%int64(len(keys))]) })
	})
	b.Run("replay of one key", func(b *testing.B) {
		h := benchGuard(b, load.Small)
		load.NewCaller(load.Small).Send(h, "k")
		parallel(b, func(c *load.Caller) { c.Send(h, "k") })
	})
}

// BenchmarkLiveKeys measures a request among many records. Their number matters to the
// caches of the processor, which hold few of them, and to the garbage collector, which has
// to look at all of them.
func BenchmarkLiveKeys(b *testing.B) {
	for _, live := range []int{1_000, 10_000, 100_000, 1_000_000} {
		guard, err := idempotency.New(idempotency.NewMemoryStore(idempotency.WithMaxEntries(2*live+10_000_000)), idempotency.SharedScope)
		require.NoError(b, err)
		work := load.Small.Answering(128)
		h, c := guard.Handler(work), load.NewCaller(work)
		// The benchmark makes each key when it sends it: a key from the network is in the
		// cache too.
		key := func(i int) string { return "live-" + strconv.Itoa(i) }
		churn := guard.With(expiring).Handler(work)
		filled := false
		fill := func() {
			for i := range live {
				if !filled {
					c.Send(h, key(i))
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
				c.Send(h, key(i*7919%live))
			}
		})
		b.Run(fmt.Sprintf("first/live=%d", live), func(b *testing.B) {
			fill()
			b.ReportAllocs()
			defer reportCPU(b)()
			for b.Loop() {
				c.Send(churn, load.Key())
			}
		})
	}
}

// BenchmarkExpiries is the steady state of a service. Records come, stay for their time and
// go, and each first run finds that the oldest has just expired. A record stays for as long
// as half a million requests take. The longest request counts here and not the mean:
// nothing may stop for a sweep.
func BenchmarkExpiries(b *testing.B) {
	const warm = 500_000
	store := idempotency.NewMemoryStore(idempotency.WithMaxEntries(100_000_000))
	work := load.Small.Answering(128)
	guard, err := idempotency.New(store, idempotency.SharedScope)
	require.NoError(b, err)
	c := load.NewCaller(work)
	fill := func(ttl time.Duration) time.Duration {
		h, start := guard.With(idempotency.WithTTL(ttl)).Handler(work), time.Now()
		for range warm {
			c.Send(h, load.Key())
		}
		return time.Since(start)
	}
	ttl := fill(time.Millisecond)
	fill(ttl)
	h := guard.With(idempotency.WithTTL(ttl)).Handler(work)
	var times []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		key, start := load.Key(), time.Now()
		c.Send(h, key)
		times = append(times, time.Since(start))
	}
	b.ReportMetric(float64(store.Len()), "live")
	slices.Sort(times)
	for name, i := range map[string]int{"p50": len(times) / 2, "p99": len(times) * 99 / 100, "max": len(times) - 1} {
		b.ReportMetric(float64(times[i].Nanoseconds()), name+"-ns")
	}
}

// BenchmarkStorm sends one new request a thousand times at once. One of them runs, and the
// others get a refusal or the answer.
func BenchmarkStorm(b *testing.B) {
	const storm = 1000
	h := benchGuard(b, load.Small)
	callers := make([]*load.Caller, storm)
	for i := range callers {
		callers[i] = load.NewCaller(load.Small)
	}
	for b.Loop() {
		key := load.Key()
		start := make(chan struct{})
		var all sync.WaitGroup
		var runs, refusals atomic.Int64
		for _, c := range callers {
			all.Go(func() {
				<-start
				switch c.Send(h, key) {
				case http.StatusConflict:
					refusals.Add(1)
				case http.StatusCreated:
					if c.Answer.Header().Get("Idempotent-Replayed") == "" {
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
