package storetest

import (
	"bytes"
	"strings"

	"example.com/idempotency/store"
)

// What decisions leave in a record.

// decided reports whether the last decision was that with the note.
func (s *naiveStore) decided(r *naiveRecord, note []byte) bool {
	last := store.LastDecision(r.Notes)
	switch {
	case s.is("whoever says the same has decided"), len(note) == 0:
		return true
	case s.is("a decision is known by its end"):
		return bytes.HasSuffix(last, note)
	case s.is("without a note, everybody has decided"):
		return last == nil || bytes.Equal(last, note)
	}
	return bytes.Equal(last, note)
}

// decide keeps the note of a decision.
func (s *naiveStore) decide(r *naiveRecord, note []byte) {
	switch {
	case s.is("decisions are not kept"):
	case s.is("a decision without a note leaves one") && len(note) == 0:
		r.Notes = store.AppendDecision(r.Notes, []byte{0})
	case s.is("a decision is a note of a run"):
		r.Notes = store.AppendNote(r.Notes, note)
	case s.is("a decision has 127 bytes at most"):
		r.Notes = store.AppendDecision(r.Notes, note[:min(len(note), 127)])
	case s.is("a decision overwrites what was handed out") && store.LastDecision(r.Notes) != nil:
		copy(store.LastDecision(r.Notes), note)
		r.Notes = store.AppendDecision(r.Notes, note)
	case s.is("decision keeps what it was given"):
		r.Notes, r.given = store.AppendDecision(r.Notes, note), note
	case s.is("only the last decision is kept"):
		var runs []byte
		for n := range store.EachNote(r.Notes) {
			runs = store.AppendNote(runs, n)
		}
		r.Notes = store.AppendDecision(runs, note)
	case s.is("decisions push runs out") && strings.Contains(string(note), "note 19"):
		r.Notes = store.AppendDecision(nil, note)
	default:
		r.Notes = store.AppendDecision(r.Notes, note)
	}
}
