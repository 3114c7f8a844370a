// Package history is the form in which stores keep the notes of a record: one list of bytes, oldest
// note first, each preceded by its length as a varint. Reading the list allocates nothing.
package history

import (
	"encoding/binary"
	"iter"
)

// MaxNotes is how many notes a record keeps.
const MaxNotes = 16

// Append appends to dst the list with one more note, without the oldest of too many. An empty note
// is none.
func Append(dst, list, note []byte) []byte {
	surplus := Len(list) - MaxNotes
	if len(note) > 0 {
		surplus++
	}
	for ; surplus > 0; surplus-- {
		_, list = cut(list)
	}
	for old := range All(list) {
		dst = appendNote(dst, old)
	}
	if len(note) > 0 {
		dst = appendNote(dst, note)
	}
	return dst
}

// All returns the notes of the list as far as it can be read. They are parts of its memory.
func All(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for {
			var note []byte
			if note, list = cut(list); note == nil || !yield(note) {
				return
			}
		}
	}
}

// Len returns how many notes there are.
func Len(list []byte) (n int) {
	for range All(list) {
		n++
	}
	return n
}

// Last returns the last note, or nil if there is none.
func Last(list []byte) (last []byte) {
	for note := range All(list) {
		last = note
	}
	return last
}

func appendNote(dst, note []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(note))), note...)
}

// cut returns the first note that is not empty, and what follows it. At the end of what can be read,
// the note is nil.
func cut(list []byte) (note, rest []byte) {
	for len(list) > 0 {
		size, n := binary.Uvarint(list)
		if n <= 0 || size > uint64(len(list)-n) {
			return nil, nil
		}
		end := n + int(size)
		if size > 0 {
			return list[n:end:end], list[end:]
		}
		list = list[end:]
	}
	return nil, nil
}
