package idempotency_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
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

// A sink is the smallest ResponseWriter: what it costs is what every server costs more.
type sink struct {
	header http.Header
	status int
	n      int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { s.n += len(p); return len(p), nil }

// A load is the same work for all benchmarks: a body in, a body out, in pieces.
type load struct {
	in, out []byte
	piece   int
}

var (
	smallLoad = load{in: bytes.Repeat([]byte("i"), 1<<10), out: bytes.Repeat([]byte("o"), 1<<10), piece: 1 << 10}
	largeLoad = load{in: bytes.Repeat([]byte("i"), 256<<10), out: bytes.Repeat([]byte("o"), 256<<10), piece: 4 << 10}
)

var chunks = sync.Pool{New: func() any { return new([4 << 10]byte) }}

var jsonType = []string{"application/json"}

func (l load) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	chunk := chunks.Get().(*[4 << 10]byte)
	defer chunks.Put(chunk)
	for {
		if _, err := r.Body.Read(chunk[:]); err != nil {
			break
		}
	}
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(http.StatusCreated)
	for rest := l.out; len(rest) > 0; rest = rest[min(l.piece, len(rest)):] {
		_, _ = w.Write(rest[:min(l.piece, len(rest))])
	}
}

// A caller sends the same request again and again, with keys as wanted, and allocates
// nothing itself once it is made.
type caller struct {
	load load
	w    sink
	r    *http.Request
	body bytes.Reader
	key  []string
}

func newCaller(l load) *caller {
	c := &caller{load: l, w: sink{header: make(http.Header, 8)}, key: []string{""}}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://bench.test/charges", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(l.in))
	r.Body = io.NopCloser(&c.body)
	c.r = r
	return c
}

func (c *caller) send(h http.Handler, key string) int {
	clear(c.w.header)
	c.w.status = 0
	c.body.Reset(c.load.in)
	if key == "" {
		delete(c.r.Header, "Idempotency-Key")
	} else {
		c.key[0] = key
		c.r.Header["Idempotency-Key"] = c.key
	}
	h.ServeHTTP(&c.w, c.r)
	return c.w.status
}

func benchGuard(tb testing.TB, l load, opts ...idempotency.Option) http.Handler {
	tb.Helper()
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, opts...)
	require.NoError(tb, err)
	return g.Handler(l)
}

// expiring lets records go as fast as they come, so that a benchmark of first runs has a
// steady state, and pays for the end of a record too.
var expiring = idempotency.WithTTL(time.Millisecond)

var keyNumber atomic.Int64

func freshKey() string { return "key-" + strconv.FormatInt(keyNumber.Add(1), 10) }

func BenchmarkHandler(b *testing.B) {
	for name, l := range map[string]load{"1KiB": smallLoad, "256KiB": largeLoad} {
		b.Run(name+"/bare", func(b *testing.B) {
			b.ReportAllocs()
			c, h := newCaller(l), http.Handler(l)
			for b.Loop() {
				c.send(h, "")
			}
		})
		b.Run(name+"/no key", func(b *testing.B) {
			b.ReportAllocs()
			c, h := newCaller(l), benchGuard(b, l)
			for b.Loop() {
				c.send(h, "")
			}
		})
		b.Run(name+"/first", func(b *testing.B) {
			b.ReportAllocs()
			c, h := newCaller(l), benchGuard(b, l, expiring)
			for b.Loop() {
				c.send(h, freshKey())
			}
		})
		b.Run(name+"/replay", func(b *testing.B) {
			b.ReportAllocs()
			c, h := newCaller(l), benchGuard(b, l)
			c.send(h, "k")
			for b.Loop() {
				c.send(h, "k")
			}
		})
		b.Run(name+"/mismatch", func(b *testing.B) {
			b.ReportAllocs()
			c, h := newCaller(l), benchGuard(b, l)
			c.send(h, "k")
			c.r.URL.Path = "/other"
			for b.Loop() {
				c.send(h, "k")
			}
		})
	}
}

// BenchmarkAgainstFloor tells how many times the least possible a request costs. The
// machine may be busy, so each is timed in turn with its floor, and the medians are
// compared: of the bare handler for a request without a key, and of the bare handler and
// the SHA-256 of the body for the others.
func BenchmarkAgainstFloor(b *testing.B) {
	for name, l := range map[string]load{"1KiB": smallLoad, "256KiB": largeLoad} {
		bare := http.Handler(l)
		c := newCaller(l)
		handler := func() { c.send(bare, "") }
		floor := func() {
			c.send(bare, "")
			sha256.Sum256(l.in)
		}
		b.Run(name+"/no key", func(b *testing.B) {
			h := benchGuard(b, l)
			compare(b, handler, func() { c.send(h, "") })
		})
		b.Run(name+"/first", func(b *testing.B) {
			h := benchGuard(b, l, expiring)
			compare(b, floor, func() { c.send(h, freshKey()) })
		})
		b.Run(name+"/replay", func(b *testing.B) {
			h := benchGuard(b, l)
			c.send(h, "k")
			compare(b, floor, func() { c.send(h, "k") })
		})
	}
}

// compare reports the median times of floor and f and how many times the one the other
// is. Both take turns, in batches that are long for the clock and short for the scheduler.
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

// What a request costs in allocations is part of what the README promises.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const runs = 2000 // the growth of the store's maps is spread as thin as in a service
	c, bare, h := newCaller(smallLoad), http.Handler(smallLoad), benchGuard(t, smallLoad)
	require.Zero(t, testing.AllocsPerRun(runs, func() { c.send(bare, "") }), "the bare handler")
	require.Zero(t, testing.AllocsPerRun(runs, func() { c.send(h, "") }), "without a key")

	keys := make([]string, runs+1)
	for i := range keys {
		keys[i] = freshKey()
	}
	n := 0
	first := testing.AllocsPerRun(runs, func() { c.send(h, keys[n]); n++ })
	c.send(h, "replayed")
	replay := testing.AllocsPerRun(runs, func() { c.send(h, "replayed") })
	t.Logf("first run: %v, replay: %v", first, replay)
	require.LessOrEqual(t, first, 8.0, "first run")
	require.LessOrEqual(t, replay, 4.0, "replay")
}

// How many bytes a request allocates is bounded by the size of what is kept of it: the
// body of the request while it runs, and its answer. A replay keeps neither; what it does
// allocate is what the garbage collector has taken out of the pools.
func TestAllocatedBytes(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, h := newCaller(largeLoad), benchGuard(t, largeLoad)
	bytes := func(key func() string) uint64 {
		const runs = 50
		c.send(h, key()) // fills the pools
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			c.send(h, key())
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / runs
	}
	first := bytes(freshKey)
	replay := bytes(func() string { return "replayed" })
	t.Logf("256 KiB in and out: first run %d bytes, replay %d", first, replay)
	require.LessOrEqual(t, first, uint64(620_000), "first run")
	require.LessOrEqual(t, replay, uint64(100_000), "replay")
}
