// Package history is what a store in memory keeps of the runs of a record: their notes, and the
// label of the last one, in as little memory as they need.
package history

import (
	"slices"
	"unique"
)

// A Label is a label, of which there is one copy for all records. The zero Label is the empty
// label.
type Label struct{ handle unique.Handle[string] }

// LabelOf returns the label with that text.
func LabelOf(text string) Label {
	if text == "" {
		return Label{}
	}
	return Label{unique.Make(text)}
}

// String returns the text of the label.
func (l Label) String() string {
	if l == (Label{}) {
		return ""
	}
	return l.handle.Value()
}

// maxNotes is how many notes a record keeps.
const maxNotes = 16

// Room returns how much memory a note takes: that of a slice of one note, and of the note itself,
// in one allocation.
func Room(note []byte) int {
	switch n := len(note); {
	case n == 0:
		return 0
	case n <= 24:
		return 24 + 24
	case n <= 56:
		return 24 + 56
	default:
		return 24 + n
	}
}

// One returns a copy of a note, as the notes of a record that has one. It is one allocation of
// [Room] bytes, a size class of the allocator.
func One(note []byte) *[1][]byte {
	switch n := len(note); {
	case n <= 24:
		var c struct {
			notes [1][]byte
			bytes [24]byte
		}
		c.notes[0] = append(c.bytes[:0], note...)
		return &c.notes
	case n <= 56:
		var c struct {
			notes [1][]byte
			bytes [56]byte
		}
		c.notes[0] = append(c.bytes[:0], note...)
		return &c.notes
	default:
		return &[1][]byte{slices.Clone(note)}
	}
}

// Append returns the notes with a copy of one more, in a new slice, because callers have the old
// one. It drops the oldest of too many.
func Append(notes [][]byte, note []byte) [][]byte {
	notes = notes[max(0, len(notes)+1-maxNotes):]
	return append(append(make([][]byte, 0, len(notes)+1), notes...), One(note)[0])
}
