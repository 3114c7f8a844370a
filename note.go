package idempotency

import (
	"context"
	"encoding/binary"
	"strings"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/history"
	"example.com/idempotency/store"
)

// This file holds the note that each claim leaves in its record: when the run began, in which
// trace, and checksums of its request. Notes are for operators. They are not sealed, and no
// decision depends on them.

// A note is what the claim of a run leaves in the record. The zero note is none.
type note struct {
	started time.Time
	trace   event.TraceContext
	sums    digest.Checksums
}

// The stored form of a note, numbers big-endian:
//
//	1      version, 1
//	2-7    start in ms since 1970
//	8-17   five checksums
//	18-33  trace ID      these three only if there is a trace
//	34-41  span ID
//	42     flags of the trace
const (
	noteVersion  = 1
	shortNoteLen = 17
	longNoteLen  = shortNoteLen + 16 + 8 + 1
)

// appendTo appends the stored form.
func (n *note) appendTo(b []byte) []byte {
	ms := uint64(n.started.UnixMilli())
	b = append(b, noteVersion, byte(ms>>40), byte(ms>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(ms))
	for _, sum := range n.sums.Parts {
		b = binary.BigEndian.AppendUint16(b, sum)
	}
	if n.trace == (event.TraceContext{}) {
		return b
	}
	b = append(append(b, n.trace.TraceID[:]...), n.trace.SpanID[:]...)
	return append(b, n.trace.Flags)
}

// readNote reads the stored form. Whatever else is stored is no note.
func readNote(b []byte) (n note) {
	if len(b) != shortNoteLen && len(b) != longNoteLen || b[0] != noteVersion {
		return note{}
	}
	n.started = time.UnixMilli(int64(b[1])<<40 | int64(b[2])<<32 | int64(binary.BigEndian.Uint32(b[3:])))
	for i := range n.sums.Parts {
		n.sums.Parts[i] = binary.BigEndian.Uint16(b[7+2*i:])
	}
	if len(b) == longNoteLen {
		n.trace = event.TraceContext{TraceID: [16]byte(b[17:]), SpanID: [8]byte(b[33:]), Flags: b[41]}
	}
	return n
}

// lastNote returns the note of a record's last run.
func lastNote(notes []byte) note { return readNote(history.Last(notes)) }

// runsOf returns what a record tells of its runs, oldest first.
func runsOf(rec *store.Record) []event.RunInfo {
	total := history.Len(rec.Notes)
	runs := make([]event.RunInfo, 0, total)
	for stored := range history.All(rec.Notes) {
		n := readNote(stored)
		runs = append(runs, event.RunInfo{Attempt: rec.Attempt - total + 1 + len(runs), Started: n.started, Trace: n.trace})
	}
	return runs
}

// differs returns the parts in which the request differs from that of the record's last run, as
// far as their checksums tell.
func (l *lease) differs(rec *store.Record) (parts event.RequestParts) {
	recorded := lastNote(rec.Notes)
	if recorded.started.IsZero() {
		return 0
	}
	for i, sum := range l.sums.Parts {
		if sum != recorded.sums.Parts[i] {
			parts |= 1 << i
		}
	}
	if parts == 0 && l.sums.Partial && countsParts(rec.Fingerprint[0]) {
		return event.PartBody // nothing else has a part without a checksum
	}
	return parts
}

// countsParts reports whether fingerprints of a version count the parts of a request and nothing
// else.
func countsParts(version byte) bool {
	return fingerprintOf(version) != nil || version == digest.VersionJob
}

// labelOf returns what stores keep of a route, which may be a long pattern.
func labelOf(route string) string {
	if len(route) <= maxRouteLen {
		return route
	}
	return strings.ToValidUTF8(route[:maxRouteLen], "")
}

// newNote returns the note of a claim that is made now.
func (s *settings) newNote(ctx context.Context, now time.Time, sums digest.Checksums) note {
	n := note{started: now, sums: sums}
	if s.traceContext != nil {
		n.trace = s.traceContext(ctx)
	}
	return n
}
