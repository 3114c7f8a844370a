package note

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// A Decision is what the settling of a held record leaves in it. The zero Decision is none.
type Decision struct {
	ID            [16]byte
	Made          time.Time
	Outcome       event.Outcome
	From          store.State // what the record was before
	Attempt       int         // of the run that was decided about
	Actor, Reason string      // as far as a record keeps them
}

// The stored form of a decision, numbers big-endian:
//
//	1      version, 1
//	2      outcome
//	3      state before
//	4-7    attempt
//	8-13   when it was made, in ms since 1970
//	14-29  ID
//	30     length of the actor, which follows
//
// and the reason.
const (
	decisionVersion = 1
	decisionLen     = 30  // without actor and reason
	maxActor        = 100 // in bytes
	maxReason       = 380
)

// NewDecision returns a decision with an ID of its own. What is too long of actor and reason is cut off.
func NewDecision(o event.Outcome, seen store.Seen, actor, reason string) Decision {
	d := Decision{
		Made: time.UnixMilli(time.Now().UnixMilli()), Outcome: o, From: seen.State, Attempt: seen.Attempt,
		Actor: cutTo(maxActor, actor), Reason: cutTo(maxReason, reason),
	}
	_, _ = rand.Read(d.ID[:]) // which never fails
	return d
}

// cutTo returns a text of at most n bytes, which says so if it was longer.
func cutTo(n int, text string) string {
	const more = "…"
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-len(more)], "") + more
}

// Name is the ID as people and programs see it.
func (d Decision) Name() string { return hex.EncodeToString(d.ID[:]) }

// Says reports whether somebody has decided the same before, for the same reason and about the same run.
func (d Decision) Says(before Decision) bool {
	before.ID, before.Made = d.ID, d.Made
	return before == d
}

// AppendTo appends the stored form.
func (d Decision) AppendTo(b []byte) []byte {
	ms := uint64(d.Made.UnixMilli())
	b = append(b, decisionVersion, byte(d.Outcome), byte(d.From))
	b = binary.BigEndian.AppendUint32(b, uint32(d.Attempt))
	b = append(b, byte(ms>>40), byte(ms>>32))
	b = binary.BigEndian.AppendUint32(b, uint32(ms))
	b = append(append(b, d.ID[:]...), byte(len(d.Actor)))
	return append(append(b, d.Actor...), d.Reason...)
}

// ReadDecision reads the stored form. Anything else that is stored is the zero Decision.
func ReadDecision(b []byte) (d Decision) {
	if len(b) < decisionLen || b[0] != decisionVersion || len(b) < decisionLen+int(b[29]) {
		return d
	}
	actor, reason := b[decisionLen:decisionLen+int(b[29])], b[decisionLen+int(b[29]):]
	return Decision{
		Outcome: event.Outcome(b[1]), From: store.State(b[2]), Attempt: int(binary.BigEndian.Uint32(b[3:])),
		Made: time.UnixMilli(int64(b[7])<<40 | int64(b[8])<<32 | int64(binary.BigEndian.Uint32(b[9:]))),
		ID:   [16]byte(b[13:]), Actor: string(actor), Reason: string(reason),
	}
}

// Decisions returns what a record tells of the decisions about it, oldest first.
func Decisions(rec *store.Record) (all []event.DecisionInfo) {
	for stored := range store.EachDecision(rec.Notes) {
		if d := ReadDecision(stored); d != (Decision{}) {
			all = append(all, event.DecisionInfo{
				ID: d.Name(), Made: d.Made, Outcome: d.Outcome, From: d.From.String(), Attempt: d.Attempt, Actor: d.Actor, Reason: d.Reason,
			})
		}
	}
	return all
}
