package note

import (
	"encoding/binary"
	"time"

	"example.com/idempotency/store"
)

// The stored form of what is left of a record that was forgotten, numbers big-endian:
//
//	1      version, 1
//	2      state
//	3-6    attempt
//	7-12   age in ms
//	13-28  owner
//
// and the decisions, as in the notes of a record.
const (
	tombstoneVersion = 1
	tombstoneLen     = 28 // without decisions
)

// Tombstone returns what is left of a record that a decision removes: what it was, and the last decisions about it. Before
// them come those of an earlier record of the key that was forgotten: what ReadTombstone has returned.
func Tombstone(rec, earlier *store.Record, d Decision) []byte {
	ms := uint64(rec.Age.Milliseconds())
	b := binary.BigEndian.AppendUint32([]byte{tombstoneVersion, byte(rec.State)}, uint32(rec.Attempt))
	b = append(b, byte(ms>>40), byte(ms>>32))
	b = append(binary.BigEndian.AppendUint32(b, uint32(ms)), rec.Owner[:]...)
	var decisions []byte
	add := func(notes []byte) {
		for one := range store.EachDecision(notes) {
			decisions = store.AppendDecision(decisions, one)
		}
	}
	if earlier.Owner != rec.Owner { // or it is what a call has left whose reply was lost
		add(earlier.Notes)
	}
	add(rec.Notes)
	return append(b, store.AppendDecision(decisions, d.AppendTo(nil))...)
}

// ReadTombstone reads the stored form, and reports whether it is one.
func ReadTombstone(b []byte) (rec store.Record, ok bool) {
	if len(b) < tombstoneLen || b[0] != tombstoneVersion {
		return rec, false
	}
	ms := int64(b[6])<<40 | int64(b[7])<<32 | int64(binary.BigEndian.Uint32(b[8:]))
	return store.Record{
		State: store.State(b[1]), Attempt: int(binary.BigEndian.Uint32(b[2:])), Age: time.Duration(ms) * time.Millisecond,
		Owner: store.Owner(b[12:]), Notes: b[tombstoneLen:],
	}, true
}
