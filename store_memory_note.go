package idempotency

import (
	"slices"
	"unique"
)

// The history of a record in the memory store: the notes of its runs, and its label.

// maxNotes is how many notes a record keeps.
const maxNotes = 16

// A memoryLabel is a label, of which there is one copy for all records. The zero memoryLabel is
// the empty label.
type memoryLabel struct{ handle unique.Handle[string] }

func labelFor(label string) memoryLabel {
	if label == "" {
		return memoryLabel{}
	}
	return memoryLabel{unique.Make(label)}
}

func (l memoryLabel) String() string {
	if l == (memoryLabel{}) {
		return ""
	}
	return l.handle.Value()
}

// noteRoom is how much memory a note takes: that of a slice of one note, and of the note itself,
// in one allocation.
func noteRoom(note []byte) int {
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

// oneNote returns a copy of a note, as the notes of a record that has one. It is one allocation of
// noteRoom bytes, a size class of the allocator.
func oneNote(note []byte) *[1][]byte {
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

// keepNote adds what the claim leaves to the history, when it is granted.
func (r *memoryRecord) keepNote(c Claim) {
	r.label = labelFor(c.Label)
	old := r.notes()
	switch {
	case len(c.Note) == 0:
	case len(old) == 0:
		r.note = oneNote(c.Note)
	default:
		if r.rare == nil {
			r.rare = new(memoryRare)
		}
		old = old[max(0, len(old)+1-maxNotes):]
		// A new slice, because callers have the old one.
		r.rare.notes = append(append(make([][]byte, 0, len(old)+1), old...), oneNote(c.Note)[0])
		r.note = nil
	}
}

// notes returns the notes of the runs, oldest first.
func (r *memoryRecord) notes() [][]byte {
	switch {
	case r.rare != nil && r.rare.notes != nil:
		return r.rare.notes
	case r.note != nil:
		return r.note[:]
	default:
		return nil
	}
}

// historySize returns how much of the store's limit of bytes the notes take.
func (r *memoryRecord) historySize() (n int) {
	for _, note := range r.notes() {
		n += noteRoom(note)
	}
	return n
}
