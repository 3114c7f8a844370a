package idempotency_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

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

func benchGuard(tb testing.TB, l load) http.Handler {
	tb.Helper()
	g, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	require.NoError(tb, err)
	return g.Handler(l)
}

var keyNumber atomic.Int64

func freshKey() string { return "key-" + strconv.FormatInt(keyNumber.Add(1), 10) }

func BenchmarkHandler(b *testing.B) {
	for name, l := range map[string]load{"1KiB": smallLoad, "256KiB": largeLoad} {
		b.Run(name+"/bare", func(b *testing.B) {
			b.ReportAllocs()
			c := newCaller(l)
			for b.Loop() {
				c.send(l, "")
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
			c, h := newCaller(l), benchGuard(b, l)
			for n := 0; b.Loop(); n++ {
				if n%1000 == 999 { // bounds the memory; the cost is spread thin
					h = benchGuard(b, l)
				}
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

// What a request costs in allocations is part of what the README promises.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	c, h := newCaller(smallLoad), benchGuard(t, smallLoad)
	bare := testing.AllocsPerRun(200, func() { c.send(smallLoad, "") })

	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { c.send(h, "") })-bare, 0.0, "without a key")

	keys := make([]string, 300)
	for i := range keys {
		keys[i] = freshKey()
	}
	n := 0
	first := testing.AllocsPerRun(200, func() { c.send(h, keys[n]); n++ })
	t.Logf("first run: %v above the bare handler", first-bare)
	require.LessOrEqual(t, first-bare, 13.0, "first run")

	c.send(h, "replayed")
	replay := testing.AllocsPerRun(200, func() { c.send(h, "replayed") })
	t.Logf("replay: %v above the bare handler", replay-bare)
	require.LessOrEqual(t, replay-bare, 10.0, "replay")
}
