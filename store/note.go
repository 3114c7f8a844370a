package store

import (
	"encoding/binary"
	"iter"

	"example.com/idempotency/internal/history"
)

// AppendNote returns the notes of a record with one more, in memory of its own. The last 16 stay. An
// empty note is none. A [Store] puts [Record.Notes] together with it, note by note.
func AppendNote(notes, note []byte) []byte {
	if len(note) == 0 {
		return notes
	}
	room := len(notes) + binary.MaxVarintLen16 + len(note)
	return history.Append(make([]byte, 0, room), notes, note)
}

// EachNote returns the notes that [AppendNote] has put together, oldest first. It ends where it can
// read no further. The notes are parts of the memory that it was given.
func EachNote(notes []byte) iter.Seq[[]byte] { return history.All(notes) }
