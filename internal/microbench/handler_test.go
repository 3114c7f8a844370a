package microbench

import (
	"crypto/sha256"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/internal/race"
)

func benchGuard(tb testing.TB, work load.Work, opts ...idempotency.Option) http.Handler {
	tb.Helper()
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, opts...)
	require.NoError(tb, err)
	return g.Handler(work)
}

// expiring removes records as fast as they come. A benchmark of first runs then has a
// steady state, and pays for the end of a record too.
var expiring = idempotency.WithTTL(time.Millisecond)

func BenchmarkHandler(b *testing.B) {
	for name, work := range map[string]load.Work{"1KiB": load.Small, "256KiB": load.Large} {
		b.Run(name+"/bare", func(b *testing.B) {
			b.ReportAllocs()
			c, h := load.NewCaller(work), http.Handler(work)
			for b.Loop() {
				c.Send(h, "")
			}
		})
		b.Run(name+"/no key", func(b *testing.B) {
			b.ReportAllocs()
			c, h := load.NewCaller(work), benchGuard(b, work)
			for b.Loop() {
				c.Send(h, "")
			}
		})
		b.Run(name+"/first", func(b *testing.B) {
			b.ReportAllocs()
			c, h := load.NewCaller(work), benchGuard(b, work, expiring)
			for b.Loop() {
				c.Send(h, load.Key())
			}
		})
		b.Run(name+"/replay", func(b *testing.B) {
			b.ReportAllocs()
			c, h := load.NewCaller(work), benchGuard(b, work)
			c.Send(h, "k")
			for b.Loop() {
				c.Send(h, "k")
			}
		})
		b.Run(name+"/mismatch", func(b *testing.B) {
			b.ReportAllocs()
			c, h := load.NewCaller(work), benchGuard(b, work)
			c.Send(h, "k")
			c.Request.URL.Path = "/other"
			for b.Loop() {
				c.Send(h, "k")
			}
		})
	}
}

// BenchmarkAgainstFloor compares a request with its floor: the bare handler for a request
// without a key, and the bare handler plus a SHA-256 of the body for the others. It times
// both in turn and compares the medians, because the machine may be busy.
func BenchmarkAgainstFloor(b *testing.B) {
	for name, work := range map[string]load.Work{"1KiB": load.Small, "256KiB": load.Large} {
		bare := http.Handler(work)
		c := load.NewCaller(work)
		handler := func() { c.Send(bare, "") }
		floor := func() {
			c.Send(bare, "")
			sha256.Sum256(work.In)
		}
		b.Run(name+"/no key", func(b *testing.B) {
			h := benchGuard(b, work)
			compare(b, handler, func() { c.Send(h, "") })
		})
		b.Run(name+"/first", func(b *testing.B) {
			h := benchGuard(b, work, expiring)
			compare(b, floor, func() { c.Send(h, load.Key()) })
		})
		b.Run(name+"/replay", func(b *testing.B) {
			h := benchGuard(b, work)
			c.Send(h, "k")
			compare(b, floor, func() { c.Send(h, "k") })
		})
	}
}

// compare reports the median times of floor and f, and their ratio. Both take turns, in
// batches that are long for the clock and short for the scheduler.
func compare(b *testing.B, floor, f func()) {
	b.Helper()
	const batch = 16
	timed := func(f func()) time.Duration {
		start := time.Now()
		for range batch {
			f()
		}
		return time.Since(start)
	}
	var floors, times []time.Duration
	for b.Loop() {
		floors, times = append(floors, timed(floor)), append(times, timed(f))
	}
	slices.Sort(floors)
	slices.Sort(times)
	least, median := floors[len(floors)/2], times[len(times)/2]
	b.ReportMetric(float64(least.Nanoseconds())/batch, "floor-ns")
	b.ReportMetric(float64(median.Nanoseconds())/batch, "p50-ns")
	b.ReportMetric(float64(median)/float64(least), "x-floor")
	b.ReportMetric(0, "ns/op") // of a batch of both: it says nothing
}

// docs/explanation/performance.md says how many allocations a request costs.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	const runs = 2000 // the growth of the store's maps is spread as thin as in a service
	c, bare, h := load.NewCaller(load.Small), http.Handler(load.Small), benchGuard(t, load.Small)
	require.Zero(t, testing.AllocsPerRun(runs, func() { c.Send(bare, "") }), "the bare handler")
	require.Zero(t, testing.AllocsPerRun(runs, func() { c.Send(h, "") }), "without a key")

	keys, n := load.Keys(runs+1), 0
	first := testing.AllocsPerRun(runs, func() { c.Send(h, keys[n]); n++ })
	c.Send(h, "replayed")
	replay := testing.AllocsPerRun(runs, func() { c.Send(h, "replayed") })
	other := load.NewCaller(load.Large)
	mismatch := testing.AllocsPerRun(runs, func() { other.Send(h, "replayed") })
	t.Logf("first run: %v, replay: %v, mismatch: %v", first, replay, mismatch)
	require.LessOrEqual(t, first, 6.0, "first run")
	require.LessOrEqual(t, replay, 2.0, "replay")
	require.LessOrEqual(t, mismatch, 1.0, "mismatch")
}

// A request allocates no more bytes than the store keeps of it, its answer. A replay keeps nothing.
// The garbage collector is off here, because it empties the pools at any moment, and there is one
// processor, because each has a part of a pool for itself.
func TestAllocatedBytes(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c, h := load.NewCaller(load.Large), benchGuard(t, load.Large)
	bytes := func(key func() string) uint64 {
		const runs = 50
		c.Send(h, key())
		c.Send(h, key()) // fills the pools, if the first was a run that took their memory
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			c.Send(h, key())
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / runs
	}
	first := bytes(load.Key)
	replay := bytes(func() string { return "replayed" })
	t.Logf("256 KiB in and out: first run %d bytes, replay %d", first, replay)
	require.LessOrEqual(t, first, uint64(280<<10), "first run")
	require.LessOrEqual(t, replay, uint64(512), "replay")
}
