// Package history is the form in which stores keep the notes of a record: one list of bytes, oldest
// note first, each preceded by its length as a varint. If anything was decided about the record, a list of
// the notes of decisions follows the notes of its runs, behind a separator. Reading the notes of runs allocates nothing.
package history

import (
	"bytes"
	"encoding/binary"
	"iter"
)

const (
	// MaxNotes is how many notes of runs a record keeps.
	MaxNotes = 16
	// MaxDecisions is how many notes of decisions it keeps beside them.
	MaxDecisions = 8
)

// separator is a length that no note has. A version that knows of no decisions takes it for the end of what
// it can read: it sees the runs as they are, and its Append leaves the decisions out.
var separator = binary.AppendUvarint(nil, 1<<35-1)

// Append appends to dst the list with one more note of a run, without the oldest of too many. An empty
// note is none.
func Append(dst, list, note []byte) []byte {
	runs, decisions := parts(list)
	return Join(appendTo(dst, runs, note, MaxNotes), decisions)
}

// AppendDecision appends to dst the list with one more note of a decision, without the oldest of too many.
// An empty note is none.
func AppendDecision(dst, list, note []byte) []byte {
	runs, decisions := parts(list)
	return Join(appendTo(dst, runs, nil, MaxNotes), appendTo(nil, decisions, note, MaxDecisions))
}

// Replace appends to dst the list with another note in place of that of the last run. An empty note is none, and
// replaces nothing.
func Replace(dst, list, note []byte) []byte {
	runs, decisions := parts(list)
	last := Last(runs)
	if len(note) == 0 || last == nil {
		return append(dst, list...)
	}
	for old := range All(runs) {
		if &old[0] == &last[0] {
			old = note
		}
		dst = appendNote(dst, old)
	}
	return Join(dst, decisions)
}

// Decision returns a list of decisions with one note, which may be empty.
func Decision(note []byte) []byte { return appendTo(nil, nil, note, MaxDecisions) }

// Join appends a list of decisions to one of runs.
func Join(runs, decisions []byte) []byte {
	if len(decisions) == 0 {
		return runs
	}
	return append(append(runs, separator...), decisions...)
}

// parts returns the lists of the runs and of the decisions.
func parts(list []byte) (runs, decisions []byte) {
	for rest := list; ; {
		if after, ok := bytes.CutPrefix(rest, separator); ok {
			return list[: len(list)-len(rest) : len(list)-len(rest)], after
		}
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return list, nil
		}
		rest = rest[n+int(size):]
	}
}

// appendTo appends to dst the last notes of a list with one more, at most so many.
func appendTo(dst, list, note []byte, most int) []byte {
	surplus := Len(list) - most
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

// Decisions returns the notes of decisions as far as they can be read. They are parts of the list's memory.
func Decisions(list []byte) iter.Seq[[]byte] {
	_, decisions := parts(list)
	return All(decisions)
}

// LastDecision returns the last note of a decision, or nil if there is none.
func LastDecision(list []byte) []byte {
	_, decisions := parts(list)
	return Last(decisions)
}

// All returns the notes of runs as far as the list can be read. They are parts of its memory.
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

// Len returns how many notes of runs there are.
func Len(list []byte) (n int) {
	for range All(list) {
		n++
	}
	return n
}

// Last returns the last note of a run, or nil if there is none.
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
