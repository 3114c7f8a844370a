package answer

import "sync"

// A Space is memory for the fields of answers that are decoded one after the other, and for values
// of header fields. A nil Space is none: then each answer and each value has memory of its own.
//
// The fields are used again. Their values are not: they become part of a header, which anybody may
// keep and change. They are cut from a slab, so that one answer seldom needs an allocation for them.
type Space struct {
	memory [12]Field // few answers have more
	used   int
	slab   []string // what is left of it
}

// slabSize is small, because each part of a slab keeps the values of other answers in memory.
const slabSize = 64

var spaces = sync.Pool{New: func() any { return new(Space) }}

// NewSpace returns an empty Space.
func NewSpace() *Space { return spaces.Get().(*Space) }

// Free takes the Space back, when the answer whose fields are in it was sent.
func (s *Space) Free() {
	if s == nil {
		return
	}
	clear(s.memory[:s.used])
	s.used = 0
	spaces.Put(s)
}

// fields returns memory for n fields.
func (s *Space) fields(n int) []Field {
	if s == nil || n > len(s.memory)-s.used {
		return make([]Field, n)
	}
	s.used += n
	return s.memory[s.used-n : s.used : s.used]
}

// Value returns the values of a header field that has one. The slice is the caller's own: code outside
// of a guard may change the values of a header in place, so no two headers may share them.
func (s *Space) Value(v string) []string {
	values := s.values(1)
	values[0] = v
	return values
}

// Copy returns a copy of the values of a field, and nil if it has none.
func (s *Space) Copy(values []string) []string {
	if len(values) == 0 {
		return nil
	}
	own := s.values(len(values))
	copy(own, values)
	return own
}

// values returns memory for n values.
func (s *Space) values(n int) []string {
	if s == nil || n > slabSize {
		return make([]string, n)
	}
	if n > len(s.slab) {
		s.slab = make([]string, slabSize)
	}
	values := s.slab[:n:n]
	s.slab = s.slab[n:]
	return values
}
