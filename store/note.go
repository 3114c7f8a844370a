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

// ReplaceNote returns the notes of a record with another one in place of that of the last run, in memory of its own. An
// empty note is none, and replaces nothing. A [Store] puts the note of [Store.Hold] into Record.Notes with it.
func ReplaceNote(notes, note []byte) []byte {
	if len(note) == 0 {
		return notes
	}
	return history.Replace(nil, notes, note)
}

// AppendDecision is AppendNote for the note of a [Settlement]. It goes beside the notes of runs, and the last 8
// decisions stay, however many runs there are.
func AppendDecision(notes, note []byte) []byte {
	if len(note) == 0 {
		return notes
	}
	return history.AppendDecision(nil, notes, note)
}

// LastDecision returns the note of the last decision, or nil if there is none. By that a store tells a call of
// [Inspector.Resolve] that is repeated from the same decision of somebody else.
func LastDecision(notes []byte) []byte { return history.LastDecision(notes) }

// EachDecision returns the notes of decisions that [AppendDecision] has put into the notes, oldest first. They
// are parts of the memory that it was given.
func EachDecision(notes []byte) iter.Seq[[]byte] { return history.Decisions(notes) }

// EachNote returns the notes of runs that [AppendNote] has put together, oldest first. It ends where it can
// read no further. The notes are parts of the memory that it was given.
func EachNote(notes []byte) iter.Seq[[]byte] { return history.All(notes) }
