package idempotency

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"strings"
	"time"

	"example.com/idempotency/internal/digest"
	"example.com/idempotency/internal/history"
)

// This file holds the note that each claim leaves in its record: when the run began, in which
// trace, and checksums of its request. Notes are for operators. They are not sealed, and no
// decision depends on them.

// A TraceContext names the span of a trace, as W3C Trace Context and OpenTelemetry do. The zero
// TraceContext is none.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// String returns the value of a traceparent field for the span, and an empty string for none.
func (t TraceContext) String() string {
	if t == (TraceContext{}) {
		return ""
	}
	b := make([]byte, 0, len("00-")+32+1+16+1+2)
	b = hex.AppendEncode(append(b, "00-"...), t.TraceID[:])
	b = hex.AppendEncode(append(b, '-'), t.SpanID[:])
	b = hex.AppendEncode(append(b, '-'), []byte{t.Flags})
	return string(b)
}

// RequestParts is a set of parts of a request.
type RequestParts uint8

// The parts of a request, as [RawFingerprint] counts them.
const (
	PartMethod RequestParts = 1 << iota
	PartPath
	PartQuery
	// PartContentType includes Content-Encoding.
	PartContentType
	PartBody
)

var partNames = [...]string{"method", "path", "query", "content-type", "body"}

// Names returns the names of the parts in the set: method, path, query, content-type, body.
func (p RequestParts) Names() []string {
	var names []string
	for i, name := range partNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the names of the parts, separated by commas.
func (p RequestParts) String() string { return strings.Join(p.Names(), ",") }

// A RunInfo is what a record tells of one of its runs.
type RunInfo struct {
	// Attempt is the number of the run.
	Attempt int
	// Started is when the run claimed the key, by the clock of its process.
	Started time.Time
	// Trace is the span that the run belongs to, if [WithTraceContext] is set.
	Trace TraceContext
}

// A note is what the claim of a run leaves in the record. The zero note is none.
type note struct {
	started time.Time
	trace   TraceContext
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
	if n.trace == (TraceContext{}) {
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
		n.trace = TraceContext{[16]byte(b[17:]), [8]byte(b[33:]), b[41]}
	}
	return n
}

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

// lastNote returns the note of a record's last run.
func lastNote(notes []byte) note { return readNote(history.Last(notes)) }

// runsOf returns what a record tells of its runs, oldest first.
func runsOf(rec *Record) []RunInfo {
	total := history.Len(rec.Notes)
	runs := make([]RunInfo, 0, total)
	for stored := range history.All(rec.Notes) {
		n := readNote(stored)
		runs = append(runs, RunInfo{Attempt: rec.Attempt - total + 1 + len(runs), Started: n.started, Trace: n.trace})
	}
	return runs
}

// differs returns the parts in which the request differs from that of the record's last run, as
// far as their checksums tell.
func (l *lease) differs(rec *Record) (parts RequestParts) {
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
		return PartBody // nothing else has a part without a checksum
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
