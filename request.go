package idempotency

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"

	"example.com/idempotency/internal/frameworks"
	"example.com/idempotency/internal/reread"
	"example.com/idempotency/problem"
)

// This file reads a request's body before the key is claimed, and puts it back for the
// handler: the very bytes that were fingerprinted.

// A requestBody is the body of one request, and owns the pooled memory that it is in. One
// of give and drop must be called at the end.
type requestBody struct {
	bytes  []byte
	pool   *sync.Pool  // of *bodyBuffer
	buffer *bodyBuffer // nil if the memory of bytes is not pooled
}

// A bodyBuffer is pooled memory for a body. The memory never leaves this file: a handler gets
// copies of parts of it, and none after it has returned.
type bodyBuffer struct {
	memory []byte
	more   [1]byte // where one byte too many would go
}

// maxPooledBody keeps a few large bodies from pinning their memory forever.
const maxPooledBody = 2 << 20

// firstRoom is the most memory that is set aside for a body before any of it has arrived.
// More is made as it arrives, growth times as much at a time: a client that declares a long
// body and sends nothing must not cost the memory that it declares.
const (
	firstRoom = 64 << 10
	growth    = 8
)

// firstRooms holds the memory for the beginning of long bodies, as *[firstRoom]byte.
var firstRooms = sync.Pool{New: func() any { return new([firstRoom]byte) }}

// read returns the next n bytes of a body.
func (b *bodyBuffer) read(body io.Reader, n int64) ([]byte, error) {
	// Memory that is much larger than n is left to the garbage collector, because a run keeps
	// all of it for as long as it lasts.
	const slack = 512
	if c := int64(cap(b.memory)); c >= n && c <= 2*n+slack {
		b.memory = b.memory[:n]
		err := readFull(body, b.memory)
		return b.memory[:n:n], err // the rest holds bytes of other requests
	}
	if n <= firstRoom {
		b.memory = make([]byte, n)
		err := readFull(body, b.memory)
		return b.memory, err
	}
	first := firstRooms.Get().(*[firstRoom]byte)
	defer firstRooms.Put(first)
	if err := readFull(body, first[:]); err != nil {
		return nil, err
	}
	memory := first[:]
	for have := int64(firstRoom); have < n; have = int64(len(memory)) {
		b.memory = make([]byte, min(n, growth*have))
		copy(b.memory, memory)
		memory = b.memory
		if err := readFull(body, memory[have:]); err != nil {
			return nil, err
		}
	}
	return memory, nil
}

// readFull fills p. Unlike io.ReadFull it returns the reader's own error, because net/http has
// another than io.EOF for a client that sends too little.
func readFull(r io.Reader, p []byte) error {
	for len(p) > 0 {
		n, err := r.Read(p)
		if p = p[n:]; err != nil && len(p) > 0 {
			return err
		}
	}
	return nil
}

// give hands the body over to a new owner.
func (b *requestBody) give() requestBody {
	body := *b
	b.buffer, b.bytes = nil, nil
	return body
}

// drop gives the memory back: nobody reads the body any more.
func (b *requestBody) drop() {
	if b.buffer != nil && cap(b.buffer.memory) <= maxPooledBody {
		b.pool.Put(b.buffer)
	}
	b.buffer, b.bytes = nil, nil
}

// read reads the body. If the declared length is over the limit it refuses the body without
// reading a byte. Its errors are refusals.
func (b *requestBody) read(r *http.Request, limit int64) *refusal {
	switch {
	case r.ContentLength > limit:
		return refused(problem.BodyTooLarge)
	case r.Body == nil || r.Body == http.NoBody:
	case r.ContentLength >= 0:
		if p := b.readDeclared(r); p != nil {
			return p
		}
	default:
		if p := b.readUndeclared(r, limit); p != nil {
			return p
		}
	}
	if len(b.bytes) == 0 && cameWithBody(r) {
		return consumedBody()
	}
	return nil
}

func (b *requestBody) readDeclared(r *http.Request) *refusal {
	b.buffer = b.pool.Get().(*bodyBuffer)
	var err error
	if b.bytes, err = b.buffer.read(r.Body, r.ContentLength); err != nil {
		return unreadableBody(err)
	}
	// net/http's server ends a body at its declared length. Another reader may have more.
	switch n, err := r.Body.Read(b.buffer.more[:]); {
	case n > 0:
		return consumedBody()
	case err != nil && !errors.Is(err, io.EOF):
		return unreadableBody(err)
	}
	return nil
}

func (b *requestBody) readUndeclared(r *http.Request, limit int64) *refusal {
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return unreadableBody(err)
	case n > limit:
		return refused(problem.BodyTooLarge)
	}
	b.bytes = buf.Bytes()
	return nil
}

// cameWithBody reports whether a request whose body is empty was sent with one. Then an outer
// handler has read it, and the handler may act on what that one found in it. No fingerprint
// would have seen that, so all requests with the key would count as equal.
func cameWithBody(r *http.Request) bool {
	if len(r.PostForm) > 0 || r.MultipartForm != nil || r.ContentLength > 0 {
		return true
	}
	// The field is as it was sent. net/http does not let it through if it is not a number.
	if strings.Trim(r.Header.Get("Content-Length"), "0") != "" {
		return true
	}
	// A body of undeclared length may really have been empty. Nobody can tell, and clients declare an empty one.
	return r.ContentLength < 0 || len(r.TransferEncoding) > 0
}

// errConsumed is for the log: the mistake is in the program, and no client can do anything about it.
var errConsumed = errors.New("idempotency: a handler in front of the guard has read the request body, or decompressed it, and has not put it back: a strict handler of oapi-codegen decodes the body before its middleware, so put the guard around the handler of the server")

// consumedDetail is the detail of a refusal whose cause is errConsumed.
const consumedDetail = "The request body is not as long as it was declared to be, or is empty and of undeclared length:" +
	" a handler in front of the guard has read it, or decompressed it. That handler has to put back what the next one should" +
	" read, and to set ContentLength. A client declares that a body is empty. This request was not run."

// consumedBody refuses a body that is not as it was sent.
func consumedBody() *refusal {
	p := refused(problem.BodyUnreadable)
	p.Detail = consumedDetail
	return p
}

// statusBodyLate is the status of a request whose body was cut off by a deadline.
const statusBodyLate = http.StatusRequestTimeout

func unreadableBody(err error) *refusal {
	switch {
	case frameworks.TooLarge(err):
		return refused(problem.BodyTooLarge) // the limit of an outer handler
	case errors.Is(err, io.EOF), errors.Is(err, http.ErrBodyReadAfterClose):
		return consumedBody() // net/http has another error for a client that sends too little
	}
	refusal := refused(problem.BodyUnreadable)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		refusal.Status = statusBodyLate
	}
	return refusal
}

// A bodyReader is the request body that a handler reads. Like that of net/http it ends with the
// handler, because its memory is used again. It has no methods beyond those of io.ReadCloser: WriteTo
// would hand the memory itself to somebody.
type bodyReader struct {
	mu   sync.Mutex
	body requestBody
	read int // so many bytes
	over bool
}

// Read implements [io.Reader].
func (b *bodyReader) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		return 0, http.ErrBodyReadAfterClose
	case b.read == len(b.body.bytes):
		return 0, io.EOF
	}
	n := copy(p, b.body.bytes[b.read:])
	b.read += n
	return n, nil
}

// Close implements [io.Closer].
func (b *bodyReader) Close() error { return nil }

// end is called when the handler has returned. Nobody can read the body any more.
func (b *bodyReader) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.body.drop()
}

// putBack makes body the body of r, which must be the guard's own copy of a request. The reader must
// be ended.
func putBack(r *http.Request, reader *bodyReader, body requestBody) {
	reader.body = body
	r.ContentLength, r.TransferEncoding = int64(len(body.bytes)), nil
	r.Body = http.NoBody
	if len(body.bytes) > 0 {
		r.Body = reader
	}
}

// servePutBack runs a handler without a claim, with a copy of r that has the body, which
// has been read, and the given context.
func servePutBack(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler, body requestBody) {
	clone := r.WithContext(ctx)
	reader := new(bodyReader)
	putBack(clone, reader, body)
	defer reader.end()
	defer reread.RemoveForm(clone, r)
	next.ServeHTTP(w, clone)
}

// A refusal is the problem that a request is refused with.
type refusal = problem.Document

func refused(code problem.Code) *refusal {
	p := problem.New(code)
	return &p
}
