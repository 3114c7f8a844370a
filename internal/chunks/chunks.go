// Package chunks has a slice that grows without moving what is in it.
package chunks

import "math/bits"

// A Slice is any number of elements in chunks that never move. The first eight chunks have room for 32
// elements each, the next eight for 64 each, and so on. So the headers of all chunks stay in the caches
// of the processor. Little room is empty: of a few elements it is a chunk, of hundreds a quarter of what
// is used at most, and of thousands an eighth.
//
// The zero Slice is empty.
type Slice[T any] struct {
	chunks [][]T // slices, and not pointers to arrays, whose first byte would be read too
	n      int
}

const (
	firstBits = 5 // the first chunks have room for 2^5 elements
	groupBits = 3 // 2^3 chunks have the same size

	// firstGroup is for how many elements the first group of chunks has room.
	firstGroup = 1 << (firstBits + groupBits)
)

// Len returns the number of elements.
func (s *Slice[T]) Len() int { return s.n }

// At returns an element. Its number is less than Len.
func (s *Slice[T]) At(i int) *T {
	chunk, place, _ := where(i)
	return &s.chunks[chunk][place]
}

// Append adds a zero element.
func (s *Slice[T]) Append() {
	if chunk, _, size := where(s.n); chunk == len(s.chunks) {
		s.chunks = append(s.chunks, make([]T, size))
	}
	s.n++
}

// where returns the chunk of an element, its place there, and the size of the chunk.
func where(i int) (chunk, place, size int) {
	// The groups before group g have room for 2^g-1 times as many elements as the first one.
	group := bits.Len(uint(i)/firstGroup+1) - 1
	rest, shift := uint(i)-firstGroup*(1<<group-1), firstBits+group
	return group<<groupBits + int(rest>>shift), int(rest & (1<<shift - 1)), 1 << shift
}
