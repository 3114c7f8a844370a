// Package note is the note that each claim leaves in its record: when the run began, in which trace,
// and checksums of its request; and that of each decision about a held record. Notes are for operators. They
// are not sealed, and what a request gets does not depend on them.
package note

import (
	"encoding/binary"
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
	version  = 1
	shortLen = 17
	MaxLen   = shortLen + 16 + 8 + 1 // the longest stored form
)

// AppendTo appends the stored form.
func (n *Note) AppendTo(b []byte) []byte {
	ms := uint64(n.Started.UnixMilli())
	b = append(b, version, byte(ms>>40), byte(ms>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(ms))
	for _, sum := range n.Sums.Parts {
		b = binary.BigEndian.AppendUint16(b, sum)
	}
	if n.Trace == (event.TraceContext{}) {
		return b
	}
	b = append(append(b, n.Trace.TraceID[:]...), n.Trace.SpanID[:]...)
	return append(b, n.Trace.Flags)
}

// Read reads the stored form. Anything else that is stored is the zero Note.
func Read(b []byte) (n Note) {
	if len(b) != shortLen && len(b) != MaxLen || b[0] != version {
		return Note{}
	}
	n.Started = time.UnixMilli(int64(b[1])<<40 | int64(b[2])<<32 | int64(binary.BigEndian.Uint32(b[3:])))
	for i := range n.Sums.Parts {
		n.Sums.Parts[i] = binary.BigEndian.Uint16(b[7+2*i:])
	}
	if len(b) == MaxLen {
		n.Trace = event.TraceContext{TraceID: [16]byte(b[17:]), SpanID: [8]byte(b[33:]), Flags: b[41]}
	}
	return n
}

// Last returns the note of a record's last run.
func Last(notes []byte) Note { return Read(history.Last(notes)) }

// Runs returns what a record tells of its runs, oldest first.
func Runs(rec *store.Record) []event.RunInfo {
	total := history.Len(rec.Notes)
	runs := make([]event.RunInfo, 0, total)
	for stored := range history.All(rec.Notes) {
		n := Read(stored)
		runs = append(runs, event.RunInfo{Attempt: rec.Attempt - total + 1 + len(runs), Started: n.Started, Trace: n.Trace})
	}
	return runs
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
