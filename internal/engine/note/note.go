// Package note is the note that each claim leaves in its record: when the run began, in which trace,
// checksums of its request, what keys are derived from, and at its end why it has left its key held; and that of each
// decision about a held record. Notes are for operators. They
// are not sealed, and what a request gets does not depend on them, but that a resolver is not asked under other keys.
package note

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/history"
	"example.com/idempotency/store"
)

// A Note is what the claim of a run leaves in the record. The zero Note is none.
type Note struct {
	Started time.Time
	Trace   event.TraceContext
	Sums    digest.Checksums
	// Early says that the note is of version 1, which tells nothing of what follows.
	Early bool
	// Derivation is the digest of what the run derived keys from.
	Derivation [4]byte
	// Hold is what a run has said that has left its key held.
	Hold Hold
}

// A Hold says why a run has left its key held: when it said so, and the status that it answered. The zero Hold is none.
type Hold struct {
	At     time.Time
	Cause  event.Cause
	Status int
}

// The stored form of a note, numbers big-endian:
//
//	1      version, 2
//	2-7    start in ms since 1970
//	8-17   five checksums
//	18-21  digest of the derivation
//	22-37  trace ID      these three only if there is a trace
//	38-45  span ID
//	46     flags of the trace
//
// and, if the run has left its key held:
//
//	1      cause
//	2-3    status
//	4-9    when it was, in ms since 1970
//
// Version 1 has neither that nor the digest.
const (
	version  = 2
	earlyLen = 17
	shortLen = earlyLen + 4
	traceLen = 16 + 8 + 1
	holdLen  = 1 + 2 + 6
	MaxLen   = shortLen + traceLen // the longest stored form of a run that has not ended
)

// causes are those of a hold, by their stored numbers.
var causes = [...]event.Cause{
	1: event.CauseUnknown, event.CausePanic, event.CauseStep, event.CauseAttempts, event.CauseCommit, event.CauseNotRecorded,
	event.CauseForgotten, event.CauseSaid,
}

// AppendTo appends the stored form.
func (n *Note) AppendTo(b []byte) []byte {
	b = appendTime(append(b, version), n.Started)
	for _, sum := range n.Sums.Parts {
		b = binary.BigEndian.AppendUint16(b, sum)
	}
	b = append(b, n.Derivation[:]...)
	if n.Trace != (event.TraceContext{}) {
		b = append(append(b, n.Trace.TraceID[:]...), n.Trace.SpanID[:]...)
		b = append(b, n.Trace.Flags)
	}
	if n.Hold.At.IsZero() {
		return b
	}
	b = append(b, byte(max(0, slices.Index(causes[:], n.Hold.Cause))))
	b = binary.BigEndian.AppendUint16(b, uint16(n.Hold.Status))
	return appendTime(b, n.Hold.At)
}

func appendTime(b []byte, t time.Time) []byte {
	ms := uint64(t.UnixMilli())
	return binary.BigEndian.AppendUint32(append(b, byte(ms>>40), byte(ms>>32)), uint32(ms))
}

func readTime(b []byte) time.Time {
	return time.UnixMilli(int64(b[0])<<40 | int64(b[1])<<32 | int64(binary.BigEndian.Uint32(b[2:])))
}

// Read reads the stored form. Anything else that is stored is the zero Note.
func Read(b []byte) (n Note) {
	if len(b) < earlyLen {
		return Note{}
	}
	begun, rest := b[:earlyLen], b[earlyLen:]
	switch {
	case b[0] == 1:
		n.Early = true
	case b[0] != version || len(b) < shortLen:
		return Note{}
	default:
		n.Derivation, rest = [4]byte(rest), rest[4:]
	}
	n.Started = readTime(begun[1:])
	for i := range n.Sums.Parts {
		n.Sums.Parts[i] = binary.BigEndian.Uint16(begun[7+2*i:])
	}
	if len(rest) >= traceLen {
		n.Trace = event.TraceContext{TraceID: [16]byte(rest), SpanID: [8]byte(rest[16:]), Flags: rest[24]}
		rest = rest[traceLen:]
	}
	if len(rest) == holdLen && !n.Early {
		n.Hold = Hold{Status: int(binary.BigEndian.Uint16(rest[1:])), At: readTime(rest[3:])}
		if int(rest[0]) < len(causes) { // or it is one of a later version
			n.Hold.Cause = causes[rest[0]]
		}
		rest = nil
	}
	if len(rest) > 0 {
		return Note{}
	}
	return n
}

// Last returns the note of a record's last run.
func Last(notes []byte) Note { return Read(history.Last(notes)) }

// HeldFor returns why a record is held, as far as it tells. Of any other record it is the zero Hold.
func HeldFor(rec *store.Record) (h Hold) {
	if rec.State == store.Held {
		n := Last(rec.Notes)
		h = n.Hold
		h.Cause = n.heldFor(true)
	}
	return h
}

// heldFor returns why a run has left its key held, if it has said so or held says that it has.
func (n *Note) heldFor(held bool) event.Cause {
	if held && n.Hold.At.IsZero() && !n.Early && !n.Started.IsZero() {
		return event.CauseLapsed // or it would have said why
	}
	return n.Hold.Cause
}

// FoundFor returns the cause that a process reports which has found a record held.
func FoundFor(rec *store.Record) event.Cause {
	if HeldFor(rec).Cause == event.CauseLapsed {
		return event.CauseLapsed
	}
	return event.CauseFound
}

// Runs returns what a record tells of its runs, oldest first.
func Runs(rec *store.Record) []event.RunInfo {
	total := history.Len(rec.Notes)
	runs := make([]event.RunInfo, 0, total)
	for stored := range history.All(rec.Notes) {
		n := Read(stored)
		run := event.RunInfo{Attempt: rec.Attempt - total + 1 + len(runs), Started: n.Started, Trace: n.Trace, Held: n.Hold.At, Status: n.Hold.Status}
		run.Cause = n.heldFor(rec.State == store.Held && run.Attempt == rec.Attempt || wasHeld(rec, run.Attempt))
		runs = append(runs, run)
	}
	return runs
}

// wasHeld reports whether somebody has decided about an attempt that had left its key held.
func wasHeld(rec *store.Record, attempt int) bool {
	for stored := range store.EachDecision(rec.Notes) {
		if d := ReadDecision(stored); d.From == store.Held && d.Attempt == attempt {
			return true
		}
	}
	return false
}

// Differs returns the parts in which a request with these checksums differs from that of the
// record's last run, as far as checksums tell.
func Differs(rec *store.Record, sums *digest.Checksums) (parts event.RequestParts) {
	recorded := Last(rec.Notes)
	if recorded.Started.IsZero() {
		return 0
	}
	for i, sum := range sums.Parts {
		if sum != recorded.Sums.Parts[i] {
			parts |= 1 << i
		}
	}
	if parts == 0 && sums.Partial && digest.CountsParts(rec.Fingerprint[0]) {
		return event.PartBody // nothing else has a part without a checksum
	}
	return parts
}

// maxLabelLen is how much of a route stores keep, in bytes.
const maxLabelLen = 64

// Label returns what stores keep of a route, which may be a long pattern.
func Label(route string) string {
	if len(route) <= maxLabelLen {
		return route
	}
	return strings.ToValidUTF8(route[:maxLabelLen], "")
}
