package memory

// A record of the memory store, and what can be said of it without its shard.

import (
	"math"
	"time"

	"example.com/idempotency/internal/slab"
	"example.com/idempotency/store"
)

// A record is what the store keeps for one key. There may be millions of records, so
// a record is small: the end of a lease, for one, is computed from touched. Moments are
// nanoseconds of the store's clock. In a free slot, every field but next is zero.
//
// A record has no pointer, so that the garbage collector need not look at it. What it cannot
// hold itself is in the values, the labels and the rare parts of its shard. The index of the
// shard knows where its value is.
//
// Among millions of records, each cache line that is read is a wait for the memory. The first
// 64 bytes are enough to recognise another key or a free slot, and a replay needs the first 128.
//
// Records change in place. The bytes of an answer, a note or a step never change, because the
// store hands them out.
type record struct {
	expires  int64
	next     int32 // of a free slot: the next one
	attempt  int32
	keyLen   uint8 // of shortKey, or isLong
	shortKey [43]byte
	state    store.State
	hold     bool
	holdEnds bool
	flags    flags

	fingerprint store.Fingerprint
	owner       store.Owner
	touched     int64  // when it was last claimed, renewed, completed, released or held
	label       uint32 // its number
	status      uint16 // of the answer
	hasRare     bool   // has a rare part

	lease     time.Duration
	retention time.Duration
	tenant    uint16 // whose share of the room it takes
}

// A entry is a record in its slot, and where its value is. The index knows that, so the memory is
// asked for the value while it is still being asked for the record. An entry is good until a record of
// the shard comes or goes. The zero entry stands for no record.
type entry struct {
	*record
	slot  int32
	value *slab.Ref // of the notes and the answer
}

func (r entry) none() bool { return r.record == nil }

// isLong is the keyLen of a key that does not fit into shortKey.
const isLong = math.MaxUint8

// isFree reports whether there is no record in the slot.
func (r *record) isFree() bool { return r.state == 0 }

// flags are what is true of a record.
type flags uint8

const (
	byLapse  flags = 1 << iota // held because the lease ended, and not by its owner
	blank                      // nothing was done under it
	unbound                    // released for a claim with any fingerprint, or claimed after that
	tookOver                   // claimed because another's lease had ended
	indexed                    // in the index of held records and of claims that say Hold
	byHand                     // settled by Resolve: its owner has lost the claim
)

func (r *record) is(flag flags) bool { return r.flags&flag != 0 }

// isOf reports whether o has the record: whether it was the last to get the claim, and has not
// lost it since.
func (r *record) isOf(o store.Owner) bool { return r.owner == o && !r.is(byHand) }

// never is the moment at which a record ends that has no end of its own.
const never = math.MaxInt64

// unanswered is how long the record is kept without an answer in that state. What is held,
// or will be when its lease ends, has no end of its own unless its claim has asked for one.
func (r *record) unanswered(state store.State) time.Duration {
	if !r.holdEnds && (state == store.Held || state == store.Claimed && r.hold) {
		return store.Forever
	}
	return r.retention
}

// lapsed reports whether the record is claimed and its lease has ended.
func (r *record) lapsed(now int64) bool {
	return r.state == store.Claimed && now-r.touched >= int64(r.lease)
}

// stateAt returns the state that callers see. A lapsed claim that says Hold is held, although
// only the next claim that finds it notes that.
func (r *record) stateAt(now int64) store.State {
	if r.hold && r.lapsed(now) {
		return store.Held
	}
	return r.state
}

// seenAs returns what somebody has seen who found the record in the state.
func (r *record) seenAs(state store.State) store.Seen {
	return store.Seen{Owner: r.owner, Attempt: int(r.attempt), State: state}
}
