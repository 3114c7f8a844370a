package idempotency

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

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

// A bodyBuffer is pooled memory for a body. A handler may keep the body that it is given, so
// a run takes the memory with it. All other requests, above all replays, are done with it
// before they are answered.
type bodyBuffer struct {
	memory []byte
	more   [1]byte // where one byte too many would go
}

// maxPooledBody keeps a few large bodies from pinning their memory forever.
const maxPooledBody = 2 << 20

// firstRoom is the most memory that is made for a body before any of it has arrived. Most
// bodies fit it. More is made as they arrive: a client that declares a long body and sends
// nothing must not cost the memory that it declares.
const firstRoom = 16 << 10

// read returns the next n bytes of a body, or those before the error that ended it.
func (b *bodyBuffer) read(body io.Reader, n int64) ([]byte, error) {
	memory := b.room(n)
	for have := 0; ; {
		if int64(have) == n {
			return memory[:n:n], nil // the rest holds bytes of other requests
		}
		if have == len(memory) {
			memory = make([]byte, min(n, 2*int64(have)))
			copy(memory, b.memory)
			b.memory = memory
		}
		k, err := body.Read(memory[have:])
		if have += k; err != nil && int64(have) < n {
			return memory[:have:have], err
		}
	}
}

// room returns memory for the first of n bytes, or for all of them. Memory that is much larger
// than n is left to the garbage collector, because a run would keep all of it.
func (b *bodyBuffer) room(n int64) []byte {
	const slack = 512
	if c := int64(cap(b.memory)); c < n || c > 2*n+slack {
		b.memory = make([]byte, min(n, firstRoom))
	}
	return b.memory[:min(n, int64(len(b.memory)))]
}

// give hands the bytes over for good.
func (b *requestBody) give() []byte {
	body := b.bytes
	if b.buffer != nil {
		b.buffer.memory = nil
	}
	b.drop()
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
		return nil
	case r.ContentLength >= 0:
		return b.readDeclared(r)
	default:
		return b.readUndeclared(r, limit)
	}
}

func (b *requestBody) readDeclared(r *http.Request) *refusal {
	b.buffer = b.pool.Get().(*bodyBuffer)
	var err error
	if b.bytes, err = b.buffer.read(r.Body, r.ContentLength); err != nil {
		return unreadableBody(err)
	}
	// A caller that is not net/http's server may send more than it declares.
	switch n, err := r.Body.Read(b.buffer.more[:]); {
	case n > 0:
		return refused(problem.BodyUnreadable)
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
	case n == 0 && formParsed(r):
		return refused(problem.BodyUnreadable)
	}
	b.bytes = buf.Bytes()
	return nil
}

// formParsed reports whether an outer handler has parsed a form. If it has left nothing of
// the body, the handler reads that form, which no fingerprint has seen.
func formParsed(r *http.Request) bool { return len(r.PostForm) > 0 || r.MultipartForm != nil }

func unreadableBody(err error) *refusal {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return refused(problem.BodyTooLarge) // the limit of an outer handler
	}
	refusal := refused(problem.BodyUnreadable)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		refusal.Status = http.StatusRequestTimeout
	}
	return refusal
}

// A bodyReader is the request body that a handler reads.
type bodyReader struct{ bytes.Reader }

func (*bodyReader) Close() error { return nil }

// putBack makes body the body of r, which must be the guard's own copy of a request.
func putBack(r *http.Request, reader *bodyReader, body []byte) {
	r.ContentLength, r.TransferEncoding = int64(len(body)), nil
	r.Body = http.NoBody
	if len(body) > 0 {
		reader.Reset(body)
		r.Body = reader
	}
}

// removeForm deletes the temporary files of a form that was parsed on a copy of r:
// net/http cleans up after its own request only.
func removeForm(clone, r *http.Request) {
	if form := clone.MultipartForm; form != nil && r.MultipartForm == nil {
		_ = form.RemoveAll()
	}
}
