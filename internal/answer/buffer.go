package answer

import "sync"

// A Buffer is memory that is used again, for the body of an answer or for its stored form.
type Buffer struct{ bytes []byte }

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// maxPooledBuffer keeps a few large answers from pinning their memory forever.
const maxPooledBuffer = 2 << 20

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Bytes returns what is in the buffer. It is valid until the buffer is freed.
func (b *Buffer) Bytes() []byte { return b.bytes }

// Append adds p.
func (b *Buffer) Append(p []byte) { b.bytes = append(b.bytes, p...) }

// AppendString adds s, without a copy on the way.
func (b *Buffer) AppendString(s string) { b.bytes = append(b.bytes, s...) }

// Free gives the memory back. Nobody may have any of it still.
func (b *Buffer) Free() {
	if cap(b.bytes) <= maxPooledBuffer {
		b.bytes = b.bytes[:0]
		buffers.Put(b)
	}
}
