// Package slab keeps the small values of many records in few blocks of memory. Neither the blocks nor
// what refers to a value has a pointer, so the garbage collector has nothing to follow.
package slab

import "encoding/binary"

const (
	// MaxValue is the greatest size of a value. It is small beside a block, so that little
	// stays empty at the end of one.
	MaxValue = 10 << 10

	// A block has at most half as much room as all living values take together, within these
	// bounds. So a store with few records stays small.
	minBlock = 4 << 10
	maxBlock = 64 << 10

	// headerLen is the length of what precedes a value in its block: slot, size, and size of the head.
	headerLen = 4 + 2 + 2
)

// A Ref says where the value of a record is. The zero Ref stands for an empty value.
type Ref struct {
	block        uint32 // counted from 1
	offset, size uint16
}

// Size returns the size of the value.
func (r Ref) Size() int { return int(r.size) }

// A Table has the records whose values an [Arena] keeps. They are known by their slots.
type Table interface {
	// Ref returns the place where the table keeps the Ref of the record in a slot, or nil if the slot
	// is free. Only the arena writes to it.
	Ref(slot int32) *Ref
}

// An Arena is the memory of the values of one [Table]. The zero Arena is empty.
//
// A block is written once, from its beginning to its end, and never used again. So bytes that
// were handed out never change, and the garbage collector keeps them for those who read them.
// A block without living values is let go of. When the full blocks have more dead bytes than
// living ones, values move from a block of which less than half lives to the one that is being
// filled. So what was written to the full blocks is never more than twice the living values, however
// different their ends are, and no more bytes move than die. Where values die in the order in
// which they came, none moves.
type Arena struct {
	blocks  []block  // by their numbers, from 1 on
	unused  []uint32 // numbers of blocks that are gone
	sparse  []uint32 // full blocks of which less than half lives, in no order
	current uint32   // the block that is being filled, if there is one
	full    int      // bytes that were written to the other blocks
	live    int      // bytes of all living values, with their headers
}

type block struct {
	bytes []byte
	live  int
	place int // in sparse, from 1 on, or 0
}

// Value returns both parts of a value. They never change, whatever becomes of the record.
func (a *Arena) Value(r Ref) (head, tail []byte) {
	if r.size == 0 {
		return nil, nil
	}
	end := int(r.offset) + int(r.size)
	b := a.blocks[r.block-1].bytes[int(r.offset)-headerLen : end : end]
	_, _, cut := header(b)
	return b[headerLen:cut:cut], b[cut:]
}

// Set gives the record in the slot, whose Ref is r, the value that consists of head and tail, of at
// most MaxValue bytes together. They may be parts of the old value.
func (a *Arena) Set(t Table, slot int32, r *Ref, head, tail []byte) {
	a.kill(r)
	if len(head)+len(tail) > 0 {
		*r = a.put(slot, head, tail)
	}
	a.tidy(t)
}

// Drop takes the value away from the record whose Ref is r.
func (a *Arena) Drop(t Table, r *Ref) {
	a.kill(r)
	a.tidy(t)
}

// kill takes a value away from its record.
func (a *Arena) kill(r *Ref) {
	if r.size == 0 {
		return
	}
	n := headerLen + int(r.size)
	a.blocks[r.block-1].live -= n
	a.live -= n
	a.weigh(r.block)
	*r = Ref{}
}

// put writes a value behind the last one.
func (a *Arena) put(slot int32, head, tail []byte) Ref {
	size := len(head) + len(tail)
	if !a.fits(headerLen + size) {
		a.next(headerLen + size)
	}
	b := &a.blocks[a.current-1]
	r := Ref{a.current, uint16(len(b.bytes) + headerLen), uint16(size)}
	b.bytes = binary.LittleEndian.AppendUint32(b.bytes, uint32(slot))
	b.bytes = binary.LittleEndian.AppendUint16(b.bytes, uint16(size))
	b.bytes = binary.LittleEndian.AppendUint16(b.bytes, uint16(len(head)))
	b.bytes = append(append(b.bytes, head...), tail...)
	b.live += headerLen + size
	a.live += headerLen + size
	return r
}

// header reads what precedes a value: the slot of its record, where it ends, and where its tail begins.
func header(b []byte) (slot int32, end, cut int) {
	return int32(binary.LittleEndian.Uint32(b)),
		headerLen + int(binary.LittleEndian.Uint16(b[4:])), headerLen + int(binary.LittleEndian.Uint16(b[6:]))
}

// fits reports whether the current block has room for n more bytes.
func (a *Arena) fits(n int) bool {
	if a.current == 0 {
		return false
	}
	b := a.blocks[a.current-1].bytes
	return cap(b)-len(b) >= n
}

// next begins a block with room for n bytes.
func (a *Arena) next(n int) {
	size := minBlock
	for size < maxBlock && size < max(n, a.live/2) {
		size *= 2
	}
	last := a.current
	if n := len(a.unused); n > 0 {
		a.current = a.unused[n-1]
		a.unused = a.unused[:n-1]
	} else {
		a.blocks = append(a.blocks, block{})
		a.current = uint32(len(a.blocks))
	}
	a.blocks[a.current-1].bytes = make([]byte, 0, size)
	if last != 0 {
		a.full += len(a.blocks[last-1].bytes)
		a.weigh(last)
	}
}

// weigh lets go of a full block that is dead, and notes one that is sparse.
func (a *Arena) weigh(number uint32) {
	b := &a.blocks[number-1]
	switch {
	case number == a.current || 2*b.live >= len(b.bytes):
	case b.live == 0:
		a.release(number)
	case b.place == 0:
		a.sparse = append(a.sparse, number)
		b.place = len(a.sparse)
	}
}

// release lets go of a full block.
func (a *Arena) release(number uint32) {
	b := &a.blocks[number-1]
	if b.place != 0 {
		last := len(a.sparse) - 1
		a.sparse[b.place-1] = a.sparse[last]
		a.blocks[a.sparse[last]-1].place = b.place
		a.sparse = a.sparse[:last]
	}
	a.full -= len(b.bytes)
	*b = block{}
	a.unused = append(a.unused, number)
}

// tidy makes the full blocks smaller if more of them is dead than lives. Then one of them is sparse.
func (a *Arena) tidy(t Table) {
	for a.full > 2*a.live && len(a.sparse) > 0 {
		a.evacuate(t, a.sparse[0])
	}
}

// evacuate moves what lives in a block, and lets go of the block.
func (a *Arena) evacuate(t Table, number uint32) {
	b := a.blocks[number-1]
	left := b.live
	for at := 0; left > 0; {
		slot, end, cut := header(b.bytes[at:])
		value := b.bytes[at : at+end]
		here := Ref{number, uint16(at + headerLen), uint16(end - headerLen)}
		if r := t.Ref(slot); r != nil && *r == here {
			*r = a.put(slot, value[headerLen:cut], value[cut:])
			left -= end
		}
		at += end
	}
	a.live -= b.live
	a.release(number)
}
