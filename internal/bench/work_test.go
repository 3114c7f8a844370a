package bench_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// A load is the work of a request: a body in, a body out, in pieces.
type load struct {
	name    string
	in, out []byte
	piece   int
}

func newLoad(name string, size, piece int) load {
	body := append(bytes.Repeat([]byte(" "), size-2), "{}"...)
	return load{name: name, in: body, out: body, piece: piece}
}

// answering returns the load with an answer of that size.
func (l load) answering(size int) load {
	l.out = l.out[:size]
	return l
}

var (
	small = newLoad("1 KiB", 1<<10, 1<<10)
	large = newLoad("256 KiB", 256<<10, 4<<10)
)

var chunks = sync.Pool{New: func() any { return new([4 << 10]byte) }}

var jsonType = []string{"application/json"}

// ServeHTTP is the handler that all middlewares protect. It allocates nothing.
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

// A sink is the smallest ResponseWriter. What a server does beyond it costs the same
// with every middleware.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }

// A caller sends the same request again and again, with keys as wanted. Once it is made
// it allocates nothing.
type caller struct {
	load load
	w    sink
	r    *http.Request
	body bytes.Reader
	key  []string

	first string // the key that again sends
}

func newCaller(l load) *caller {
	c := &caller{load: l, w: sink{header: make(http.Header, 8)}, key: []string{""}}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://bench.test/charges", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header["Content-Type"] = jsonType
	r.ContentLength = int64(len(l.in))
	r.Body = io.NopCloser(&c.body)
	c.r = r
	return c
}

// send sends one request, without a key if that is empty, and returns the status of the
// answer.
func (c *caller) send(h http.Handler, key string) int {
	clear(c.w.header)
	c.w.status = 0
	c.body.Reset(c.load.in)
	delete(c.r.Header, "Idempotency-Key")
	if key != "" {
		c.key[0] = key
		c.r.Header["Idempotency-Key"] = c.key
	}
	h.ServeHTTP(&c.w, c.r)
	return c.w.status
}

// again returns a key that h has answered before: always the same.
func (c *caller) again(h http.Handler, key string) string {
	if c.first == "" {
		c.first = key
		c.send(h, key)
	}
	return c.first
}

var made int

// freshKeys makes keys before the clock runs.
func freshKeys(n int) []string {
	list := make([]string, n)
	for i := range list {
		made++
		// As long as the UUIDs that clients send.
		digits := strconv.Itoa(made)
		list[i] = "7f9c24e5-2b1d-4e1c-9c57-000000000000"[:36-len(digits)] + digits
	}
	return list
}
