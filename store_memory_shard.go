package idempotency

// A part of the memory store, and a record in it: what each call does to a record under
// the lock of its shard.

import (
	"bytes"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"example.com/idempotency/internal/chunks"
	"example.com/idempotency/internal/expiry"
	"example.com/idempotency/internal/intern"
	"example.com/idempotency/internal/oldest"
	"example.com/idempotency/internal/slab"
	"example.com/idempotency/internal/slotindex"
	"example.com/idempotency/internal/watch"
	"example.com/idempotency/store"
)

// A memoryShard is one part of a [MemoryStore]. mu guards all of it, including the
// records.
type memoryShard struct {
	mu       sync.Mutex
	records  memoryTable
	values   slab.Arena   // of each record, its notes and then its answer, unless that is large
	labels   intern.Table // of the records
	queue    expiry.Queue
	watchers watch.Registry
	holding  *oldest.Index // nil until the first record enters it
	_        [16]byte      // fills the last cache line, so that shards do not share one
}

// A memoryRecord is what the store keeps for one key. There may be millions of records, so
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
type memoryRecord struct {
	expires  int64
	next     int32 // of a free slot: the next one
	attempt  int32
	keyLen   uint8 // of shortKey, or isLong
	shortKey [43]byte
	state    store.State
	hold     bool
	holdEnds bool
	flags    memoryFlags

	fingerprint Fingerprint
	owner       store.Owner
	touched     int64  // when it was last claimed, renewed, completed, released or held
	label       uint32 // its number
	status      uint16 // of the answer
	hasRare     bool   // has a rare part

	lease     time.Duration
	retention time.Duration
	tenant    uint16 // whose share of the room it takes
}

// A memoryEntry is a record in its slot, and where its value is. The index knows that, so the memory is
// asked for the value while it is still being asked for the record. An entry is good until a record of
// the shard comes or goes. The zero entry stands for no record.
type memoryEntry struct {
	*memoryRecord
	slot  int32
	value *slab.Ref // of the notes and the answer
}

func (r memoryEntry) none() bool { return r.memoryRecord == nil }

// isFree reports whether there is no record in the slot.
func (r *memoryRecord) isFree() bool { return r.state == 0 }

// isLong is the keyLen of a key that does not fit into shortKey.
const isLong = math.MaxUint8

// memoryFlags are what is true of a record.
type memoryFlags uint8

const (
	byLapse  memoryFlags = 1 << iota // held because the lease ended, and not by its owner
	blank                            // nothing was done under it
	unbound                          // released for a claim with any fingerprint, or claimed after that
	tookOver                         // claimed because another's lease had ended
	indexed                          // in the index of held records and of claims that say Hold
	byHand                           // settled by Resolve: its owner has lost the claim
)

func (r *memoryRecord) is(flag memoryFlags) bool { return r.flags&flag != 0 }

// isOf reports whether o has the record: whether it was the last to get the claim, and has not
// lost it since.
func (r *memoryRecord) isOf(o store.Owner) bool { return r.owner == o && !r.is(byHand) }

// never is the moment at which a record ends that has no end of its own.
const never = math.MaxInt64

// insert adds a record that c has claimed.
func (sh *memoryShard) insert(hash uint64, key string, c store.Claim, now int64) memoryEntry {
	r := sh.records.insert(hash, key)
	r.fingerprint, r.attempt, r.flags = c.Fingerprint, 1, blank
	sh.keepNote(r, c)
	sh.queue.Push(r.slot, never) // where a new record mostly stays
	sh.grant(r, c, now)
	return r
}

func (sh *memoryShard) remove(r memoryEntry, hash uint64) {
	if r.is(indexed) {
		sh.holding.Leave(r.slot)
	}
	sh.queue.Remove(r.slot)
	sh.values.Drop(&sh.records, r.value)
	sh.labels.Release(r.label)
	sh.records.remove(r, hash)
	if sh.records.isSpacious() {
		sh.records.init(sh.records.seed)
		sh.queue, sh.values = expiry.Queue{}, slab.Arena{}
	}
}

// touch puts the record into the state and lets it expire after kept.
func (sh *memoryShard) touch(r memoryEntry, state store.State, now int64, kept time.Duration) {
	r.state, r.touched = state, now
	r.flags &^= byLapse
	r.expires = now + min(int64(kept), never-now)
	sh.queue.Move(r.slot, r.expires)
	sh.index(r, now)
}

// index keeps the index of held records, and of claims that say Hold, as the state of a record
// says.
func (sh *memoryShard) index(r memoryEntry, now int64) {
	holding := r.state == store.Held || r.state == store.Claimed && r.hold
	if holding == r.is(indexed) {
		return
	}
	r.flags ^= indexed
	if !holding {
		sh.holding.Leave(r.slot)
		return
	}
	if sh.holding == nil {
		sh.holding = new(oldest.Index)
	}
	sh.holding.Enter(r.slot, now)
}

// claim gives the claim to the caller if the caller may have it, and returns the record. If there is no
// room for what another attempt would bring, it returns ErrStoreFull and changes nothing.
func (sh *memoryShard) claim(r memoryEntry, c store.Claim, now int64, room bool) (store.Record, error) {
	lapsed := r.lapsed(now)
	free := r.state == store.Released && !r.isOf(c.Owner)
	switch {
	case r.fingerprint != c.Fingerprint && (!free || !r.is(unbound)):
		return sh.see(r, now), nil
	case r.state == store.Claimed && r.isOf(c.Owner):
		// Either the record was made for this claim, or the claim was sent again, perhaps
		// because the first reply was lost. Its caller counts the lease from this call.
		if now != r.touched {
			sh.grant(r, c, now)
		}
	case lapsed && (r.hold || c.Hold):
		r.state = store.Held
		r.flags |= byLapse
		if !r.holdEnds {
			r.expires = never
			sh.queue.Move(r.slot, r.expires)
		}
		sh.index(r, now)
		return sh.see(r, now), nil
	case free && c.Watch: // the end that the caller has waited for
		return sh.see(r, now), nil
	case (lapsed || free) && !room:
		return store.Record{}, ErrStoreFull
	case lapsed, free: // and not indexed
		r.attempt++
		r.fingerprint = c.Fingerprint
		r.flags &= blank | unbound
		if lapsed {
			r.flags = tookOver
		}
		sh.keepNote(r, c)
		sh.grant(r, c, now)
	default:
		return sh.see(r, now), nil
	}
	out := sh.see(r, now)
	out.Mine, out.Lapsed = true, r.is(tookOver)
	if r.attempt > 1 {
		out.Steps = sh.stepsByName(r)
	}
	return out, nil
}

// grant makes the caller the owner of the record.
func (sh *memoryShard) grant(r memoryEntry, c store.Claim, now int64) {
	r.owner, r.hold, r.holdEnds = c.Owner, c.Hold, c.HoldEnds
	r.lease, r.retention = c.Lease, c.Retention
	sh.touch(r, store.Claimed, now, r.unanswered(store.Claimed))
}

// unanswered is how long the record is kept without an answer in that state. What is held,
// or will be when its lease ends, has no end of its own unless its claim has asked for one.
func (r *memoryRecord) unanswered(state store.State) time.Duration {
	if !r.holdEnds && (state == store.Held || state == store.Claimed && r.hold) {
		return store.Forever
	}
	return r.retention
}

// lapsed reports whether the record is claimed and its lease has ended.
func (r *memoryRecord) lapsed(now int64) bool {
	return r.state == store.Claimed && now-r.touched >= int64(r.lease)
}

// see returns the record as it is at the moment, without its steps.
func (sh *memoryShard) see(r memoryEntry, now int64) store.Record {
	notes, answer := sh.values.Value(*r.value)
	out := store.Record{
		State:       r.stateAt(now),
		Attempt:     int(r.attempt),
		Owner:       r.owner,
		Fingerprint: r.fingerprint,
		TTL:         time.Duration(r.expires - now),
		Age:         time.Duration(now - r.touched),
		Notes:       notes,
		Label:       sh.labels.Text(r.label),
	}
	if r.state == store.Completed {
		out.Answer, out.Status = answer, int(r.status)
		if rare := sh.records.rareOf(r); rare != nil && rare.large != nil {
			out.Answer = rare.large
		}
		if out.Answer == nil { // an empty one, and there are no notes
			out.Answer = []byte{}
		}
		out.Size = int64(len(out.Answer))
	}
	if r.expires == never {
		out.TTL = store.Forever
	}
	if out.State == store.Claimed {
		out.Lease = max(0, r.lease-out.Age)
	}
	return out
}

// outline returns what queries ask about a record. It does not look for the value.
func (sh *memoryShard) outline(r memoryEntry, now int64) store.Record {
	return store.Record{State: r.stateAt(now), Label: sh.labels.Text(r.label), Age: time.Duration(now - r.touched)}
}

// stateAt returns the state that callers see. A lapsed claim that says Hold is held, although
// only the next claim that finds it notes that.
func (r *memoryRecord) stateAt(now int64) store.State {
	if r.hold && r.lapsed(now) {
		return store.Held
	}
	return r.state
}

// seenAs returns what somebody has seen who found the record in the state.
func (r *memoryRecord) seenAs(state store.State) store.Seen {
	return store.Seen{Owner: r.owner, Attempt: int(r.attempt), State: state}
}

// resolvedTo reports whether the record is as Resolve leaves it.
func (sh *memoryShard) resolvedTo(r memoryEntry, s store.Settlement) bool {
	switch {
	case !r.is(byHand):
		return false
	case s.Completion != nil:
		return r.state == store.Completed && bytes.Equal(sh.see(r, 0).Answer, s.Completion.Answer)
	}
	rare := sh.records.rareOf(r)
	for name := range s.Undone {
		if rare.step(name) != nil {
			return false
		}
	}
	return r.state == store.Released
}

// hasSteps reports whether the record has these steps with these values.
func (sh *memoryShard) hasSteps(r memoryEntry, steps map[string][]byte) bool {
	rare := sh.records.rareOf(r)
	for name, value := range steps {
		if step := rare.step(name); step == nil || !bytes.Equal(step.value, value) {
			return false
		}
	}
	return true
}

// A memoryTable finds the records of a shard by their keys. It is made for millions of
// records. They are stored in numbered slots. Neither the slots nor the index have pointers, so
// the garbage collector looks into none of them.
//
// A slot that becomes free is used again for the next record. The memory is given back as
// a whole when no record is left.
type memoryTable struct {
	seed  maphash.Seed
	index slotindex.Index[slab.Ref] // by the hashes of the keys
	slots chunks.Slice[memoryRecord]
	rare  map[int32]*memoryRare // by slot, of the few records that have such a part
	free  int32                 // the first of the free slots
}

// noSlot ends the chain of the free slots.
const noSlot = -1

// fewSlots is how many slots an empty table may keep.
const fewSlots = 32

func (t *memoryTable) init(seed maphash.Seed) {
	*t = memoryTable{seed: seed, free: noSlot}
}

// isSpacious reports whether the table is empty and has room for more than a few records.
func (t *memoryTable) isSpacious() bool { return t.index.Len() == 0 && t.slots.Len() > fewSlots }

// at returns the record in a slot, without its value.
func (t *memoryTable) at(slot int32) memoryEntry {
	return memoryEntry{memoryRecord: t.slots.At(int(slot)), slot: slot}
}

// entry returns the record in a slot that has been used, if there is one.
func (t *memoryTable) entry(slot int32) memoryEntry {
	r := t.at(slot)
	if _, r.value = t.index.Find(indexHash(t.hash(r)), func(other int32) bool { return other == slot }); r.value == nil {
		return memoryEntry{}
	}
	return r
}

// Ref implements [slab.Table].
func (t *memoryTable) Ref(slot int32) *slab.Ref { return t.entry(slot).value }

// rareOf returns the rare part of a record, or nil if it has none.
func (t *memoryTable) rareOf(r memoryEntry) *memoryRare {
	if !r.hasRare {
		return nil
	}
	return t.rare[r.slot]
}

// addRare returns the rare part of a record, which gets one if it has none.
func (t *memoryTable) addRare(r memoryEntry) *memoryRare {
	if r.hasRare {
		return t.rare[r.slot]
	}
	if t.rare == nil {
		t.rare = make(map[int32]*memoryRare)
	}
	rare := new(memoryRare)
	r.hasRare, t.rare[r.slot] = true, rare
	return rare
}

// setKey sets the key of a new record. A key of the length that guards make is stored in
// the record itself.
func (t *memoryTable) setKey(r memoryEntry, key string) {
	if len(key) > len(r.shortKey) {
		r.keyLen = isLong
		t.addRare(r).longKey = key
		return
	}
	r.keyLen = uint8(copy(r.shortKey[:], key))
}

// hash computes the hash of the key. The record does not keep it, because reads are more
// frequent than removals.
func (t *memoryTable) hash(r memoryEntry) uint64 {
	if r.keyLen == isLong {
		return maphash.String(t.seed, t.rareOf(r).longKey)
	}
	return maphash.Bytes(t.seed, r.shortKey[:r.keyLen])
}

func (t *memoryTable) hasKey(r memoryEntry, key string) bool {
	if r.keyLen == isLong {
		return t.rareOf(r).longKey == key
	}
	return string(r.shortKey[:r.keyLen]) == key
}

func (t *memoryTable) key(r memoryEntry) string {
	if r.keyLen == isLong {
		return t.rareOf(r).longKey
	}
	return string(r.shortKey[:r.keyLen])
}

// find returns the record of a key, if there is one.
func (t *memoryTable) find(hash uint64, key string) memoryEntry {
	slot, value := t.index.Find(indexHash(hash), func(slot int32) bool { return t.hasKey(t.at(slot), key) })
	if value == nil {
		return memoryEntry{}
	}
	r := t.at(slot)
	r.value = value
	return r
}

// indexHash returns the part of a hash that the index uses. Other bits of it choose the shard.
func indexHash(hash uint64) uint32 { return uint32(hash >> 32) }

// insert returns a new record for a key that has none.
func (t *memoryTable) insert(hash uint64, key string) memoryEntry {
	slot := t.free
	if slot != noSlot {
		t.free = t.at(slot).next
	} else {
		slot = int32(t.slots.Len())
		t.slots.Append()
	}
	r := t.at(slot)
	r.next, r.value = 0, t.index.Add(indexHash(hash), slot)
	t.setKey(r, key)
	return r
}

// remove removes a record and clears its slot.
func (t *memoryTable) remove(r memoryEntry, hash uint64) {
	t.index.Remove(indexHash(hash), r.slot)
	if r.hasRare {
		delete(t.rare, r.slot)
	}
	*r.memoryRecord = memoryRecord{next: t.free}
	t.free = r.slot
}
