// Package load makes the requests that benchmarks and allocation tests measure, and the handler
// that answers them. Once made, neither allocates, so a test measures only the code between
// them.
package load

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
)

// Work is what a request is for: a body in, a body out. It is the handler that does that,
// and is safe for concurrent use as long as nobody changes its fields.
type Work struct {
	In, Out []byte
	// Piece is how much of Out is written at once; 0 means all.
	Piece int
}

// Small and Large are the sizes that tables show: 1 KiB in one piece, and 256 KiB in
// pieces as io.Copy and templates make them.
var (
	Small = New(1<<10, 1<<10)
	Large = New(256<<10, 4<<10)
)

// New returns work with size bytes of JSON, at least two, in each direction.
func New(size, piece int) Work {
	body := append(bytes.Repeat([]byte(" "), size-2), "{}"...)
	return Work{In: body, Out: body, Piece: piece}
}

// Answering returns the work with an answer that is cut to size bytes.
func (w Work) Answering(size int) Work {
	w.Out = w.Out[:size]
	return w
}

var (
	chunks   = sync.Pool{New: func() any { return new([4 << 10]byte) }}
	jsonType = []string{"application/json"}
)

// ServeHTTP reads the request to its end and answers 201 with Out.
func (w Work) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	chunk := chunks.Get().(*[4 << 10]byte)
	defer chunks.Put(chunk)
	for {
		if _, err := r.Body.Read(chunk[:]); err != nil {
			break
		}
	}
	rw.Header()["Content-Type"] = jsonType
	rw.WriteHeader(http.StatusCreated)
	piece := w.Piece
	if piece == 0 {
		piece = len(w.Out)
	}
	for rest := w.Out; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
		_, _ = rw.Write(rest[:min(piece, len(rest))])
	}
}

// An Answer is the smallest http.ResponseWriter: what a server does beyond it costs the
// same with every middleware. It counts what is written and keeps nothing of it.
type Answer struct {
	Status, Length int

	header http.Header
}

// Header returns the header of the answer.
func (a *Answer) Header() http.Header { return a.header }

// WriteHeader notes the status.
func (a *Answer) WriteHeader(status int) { a.Status = status }

// Write counts p.
func (a *Answer) Write(p []byte) (int, error) { a.Length += len(p); return len(p), nil }

// A Caller sends the same request again and again, with keys as wanted. It is for one
// goroutine at a time.
type Caller struct {
	// Request is what is sent. It may be changed between two calls of Send, but for its
	// body and its key.
	Request *http.Request
	// Answer is the one to the request that was sent last.
	Answer Answer

	in   []byte
	body bytes.Reader
	key  []string
}

// NewCaller returns a caller whose request is a POST of w.In.
func NewCaller(w Work) *Caller {
	c := &Caller{Answer: Answer{header: make(http.Header, 8)}, in: w.In, key: []string{""}}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://bench.test/charges", http.NoBody)
	if err != nil {
		panic(err)
	}
	r.Header["Content-Type"] = jsonType
	r.ContentLength = int64(len(w.In))
	r.Body = io.NopCloser(&c.body)
	c.Request = r
	return c
}

// Send sends the request to h, without a key if that is empty, and returns the status of
// the answer; 0 if the handler set none.
func (c *Caller) Send(h http.Handler, key string) int {
	clear(c.Answer.header)
	c.Answer.Status, c.Answer.Length = 0, 0
	c.body.Reset(c.in)
	if key == "" {
		delete(c.Request.Header, "Idempotency-Key")
	} else {
		c.key[0] = key
		c.Request.Header["Idempotency-Key"] = c.key
	}
	h.ServeHTTP(&c.Answer, c.Request)
	return c.Answer.Status
}

var made atomic.Int64

// Key returns a key that it has not returned before in this process, as long as the UUIDs
// that clients send.
func Key() string {
	digits := strconv.FormatInt(made.Add(1), 10)
	return "7f9c24e5-2b1d-4e1c-9c57-000000000000"[:36-len(digits)] + digits
}

// Keys returns n of them, for measurements that making a key would disturb.
func Keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = Key()
	}
	return keys
}
