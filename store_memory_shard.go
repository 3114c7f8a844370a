package idempotency

// A part of the memory store, and a record in it: what each call does to a record under
// the lock of its shard.

import (
	"bytes"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"example.com/idempotency/internal/expiry"
	"example.com/idempotency/internal/history"
	"example.com/idempotency/internal/oldest"
	"example.com/idempotency/internal/watch"
)

// A memoryShard is one part of a [MemoryStore]. mu guards all of it, including the
// records.
type memoryShard struct {
	mu       sync.Mutex
	records  memoryTable
	queue    expiry.Queue
	watchers watch.Registry
	holding  *oldest.Index // nil until the first record enters it
	_        [16]byte      // fills the last cache line, so that shards do not share one
}

// A memoryRecord is what the store keeps for one key. There may be millions of records, so
// a record is small: the end of a lease, for one, is computed from touched. Moments are
// nanoseconds of the store's clock. In a free slot, every field but next is zero.
//
// A record is three cache lines. Among millions of records, each line that is read is a
// wait for the memory. The first line is enough to recognise another key or a free slot,
// and the first two hold most of what a replay needs.
//
// Records change in place. The bytes of an answer or a step never change, because the
// store hands them out.
type memoryRecord struct {
	rare     *memoryRare // nil in most records
	keyLen   uint8       // of shortKey
	shortKey [43]byte
	state    State
	hold     bool
	holdEnds bool
	flags    memoryFlags
	next     int32 // slot of another record with the same hash, or of another free one
	attempt  int32

	fingerprint Fingerprint
	answer      []byte
	expires     int64

	touched   int64 // when it was last claimed, renewed, completed, released or held
	lease     time.Duration
	retention time.Duration
	owner     Owner
	slot      int32  // where the record is
	status    uint16 // of the answer
	tenant    uint16 // whose share of the room it takes
	notes     []byte // see AppendNote
	label     history.Label
}

// memoryFlags are what is true of a record.
type memoryFlags uint8

const (
	byLapse  memoryFlags = 1 << iota // held because the lease ended, and not by its owner
	blank                            // nothing was done under it
	unbound                          // released for a claim with any fingerprint
	tookOver                         // claimed because another's lease had ended
	indexed                          // in the index of held records and of claims that say Hold
	byHand                           // settled by Resolve: its owner has lost the claim
)

func (r *memoryRecord) is(flag memoryFlags) bool { return r.flags&flag != 0 }

// isOf reports whether o has the record: whether it was the last to get the claim, and has not
// lost it since.
func (r *memoryRecord) isOf(o Owner) bool { return r.owner == o && !r.is(byHand) }

// A memoryRare is the part of a record that few records have.
type memoryRare struct {
	longKey string // if it does not fit into shortKey
	steps   []memoryStep
	// sealedKey is a string because the record is smaller then.
	sealedKey string
}

// never is the moment at which a record ends that has no end of its own.
const never = math.MaxInt64

// A memoryStep is a recorded part of a run. A record has few of them, and a map would cost
// 400 bytes for the first.
type memoryStep struct {
	name  string
	value []byte
}

// insert adds a record that c has claimed.
func (sh *memoryShard) insert(hash uint64, key string, c Claim, now int64) *memoryRecord {
	r := sh.records.insert(hash, key)
	r.fingerprint, r.attempt, r.flags = c.Fingerprint, 1, blank
	r.keepNote(c)
	sh.queue.Push(r.slot, never) // where a new record mostly stays
	r.grant(sh, c, now)
	return r
}

func (sh *memoryShard) remove(r *memoryRecord, hash uint64) {
	if r.is(indexed) {
		sh.holding.Leave(r.slot)
	}
	sh.queue.Remove(r.slot)
	sh.records.remove(r, hash)
	if sh.records.isSpacious() {
		sh.records.init()
		sh.queue = expiry.Queue{}
	}
}

// touch puts the record into the state and lets it expire after kept.
func (sh *memoryShard) touch(r *memoryRecord, state State, now int64, kept time.Duration) {
	r.state, r.touched = state, now
	r.flags &^= byLapse
	r.expires = now + min(int64(kept), never-now)
	sh.queue.Move(r.slot, r.expires)
	sh.index(r, now)
}

// index keeps the index of held records, and of claims that say Hold, as the state of a record
// says.
func (sh *memoryShard) index(r *memoryRecord, now int64) {
	holding := r.state == StateHeld || r.state == StateClaimed && r.hold
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

// claim gives the claim to the caller if the caller may have it, and returns the record.
func (r *memoryRecord) claim(sh *memoryShard, c Claim, now int64) Record {
	lapsed := r.lapsed(now)
	free := r.state == StateReleased && !r.isOf(c.Owner)
	switch {
	case r.fingerprint != c.Fingerprint && (!free || !r.is(unbound)):
		return r.see(now)
	case r.state == StateClaimed && r.isOf(c.Owner):
		// Either the record was made for this claim, or the claim was sent again, perhaps
		// because the first reply was lost. Its caller counts the lease from this call.
		if now != r.touched {
			r.grant(sh, c, now)
		}
	case lapsed && (r.hold || c.Hold):
		r.state = StateHeld
		r.flags |= byLapse
		if !r.holdEnds {
			r.expires = never
			sh.queue.Move(r.slot, r.expires)
		}
		sh.index(r, now)
		return r.see(now)
	case lapsed, free: // and not indexed
		r.attempt++
		r.fingerprint = c.Fingerprint
		r.flags &= blank
		if lapsed {
			r.flags = tookOver
		}
		r.keepNote(c)
		r.grant(sh, c, now)
	default:
		return r.see(now)
	}
	out := r.see(now)
	out.Mine, out.Lapsed = true, r.is(tookOver)
	if r.attempt > 1 {
		out.Steps = r.stepsByName()
	}
	return out
}

// grant makes the caller the owner of the record.
func (r *memoryRecord) grant(sh *memoryShard, c Claim, now int64) {
	r.owner, r.hold, r.holdEnds = c.Owner, c.Hold, c.HoldEnds
	r.lease, r.retention = c.Lease, c.Retention
	sh.touch(r, StateClaimed, now, r.unanswered(StateClaimed))
}

// unanswered is how long the record is kept without an answer in that state. What is held,
// or will be when its lease ends, has no end of its own unless its claim has asked for one.
func (r *memoryRecord) unanswered(state State) time.Duration {
	if !r.holdEnds && (state == StateHeld || state == StateClaimed && r.hold) {
		return Forever
	}
	return r.retention
}

// lapsed reports whether the record is claimed and its lease has ended.
func (r *memoryRecord) lapsed(now int64) bool {
	return r.state == StateClaimed && now-r.touched >= int64(r.lease)
}

// see returns the record as it is at the moment, without its steps.
func (r *memoryRecord) see(now int64) Record {
	out := Record{
		State:       r.stateAt(now),
		Attempt:     int(r.attempt),
		Owner:       r.owner,
		Fingerprint: r.fingerprint,
		TTL:         time.Duration(r.expires - now),
		Age:         time.Duration(now - r.touched),
		Status:      int(r.status),
		Size:        int64(len(r.answer)),
		Answer:      r.answer,
		Notes:       r.notes,
		Label:       r.label.String(),
	}
	if r.expires == never {
		out.TTL = Forever
	}
	if out.State == StateClaimed {
		out.Lease = r.lease - out.Age
	}
	return out
}

// stateAt returns the state that callers see. A lapsed claim that says Hold is held, although
// only the next claim that finds it notes that.
func (r *memoryRecord) stateAt(now int64) State {
	if r.hold && r.lapsed(now) {
		return StateHeld
	}
	return r.state
}

// seenAs returns what somebody has seen who found the record in the state.
func (r *memoryRecord) seenAs(state State) Seen {
	return Seen{Owner: r.owner, Attempt: int(r.attempt), State: state}
}

// resolvedTo reports whether the record is as Resolve leaves it.
func (r *memoryRecord) resolvedTo(s Settlement) bool {
	switch {
	case !r.is(byHand):
		return false
	case s.Completion != nil:
		return r.state == StateCompleted && bytes.Equal(r.answer, s.Completion.Answer)
	}
	for name := range s.Undone {
		if r.step(name) != nil {
			return false
		}
	}
	return r.state == StateReleased
}

// hasSteps reports whether the record has these steps with these values.
func (r *memoryRecord) hasSteps(steps map[string][]byte) bool {
	for name, value := range steps {
		if step := r.step(name); step == nil || !bytes.Equal(step.value, value) {
			return false
		}
	}
	return true
}

// keepNote adds what the claim leaves to the history, when it is granted.
func (r *memoryRecord) keepNote(c Claim) {
	r.label = history.LabelOf(c.Label)
	if len(c.SealedKey) > 0 {
		if r.rare == nil {
			r.rare = new(memoryRare)
		}
		r.rare.sealedKey = string(c.SealedKey)
	}
	r.notes = AppendNote(r.notes, c.Note)
}

// sealedKey returns a copy of the sealed key, or nil if there is none.
func (r *memoryRecord) sealedKey() []byte {
	if r.rare == nil || r.rare.sealedKey == "" {
		return nil
	}
	return []byte(r.rare.sealedKey)
}

// step returns the step of that name, or nil.
func (r *memoryRecord) step(name string) *memoryStep {
	if r.rare == nil {
		return nil
	}
	for i := range r.rare.steps {
		if r.rare.steps[i].name == name {
			return &r.rare.steps[i]
		}
	}
	return nil
}

// stepsByName returns the steps as a new map.
func (r *memoryRecord) stepsByName() map[string][]byte {
	if r.rare == nil || len(r.rare.steps) == 0 {
		return nil
	}
	steps := make(map[string][]byte, len(r.rare.steps))
	for _, step := range r.rare.steps {
		steps[step.name] = step.value
	}
	return steps
}

// setKey sets the key of a new record. A key of the length that guards make is stored in
// the record itself, so that comparing it follows no pointer.
func (r *memoryRecord) setKey(key string) {
	if len(key) > len(r.shortKey) {
		r.rare = &memoryRare{longKey: key}
		return
	}
	r.keyLen = uint8(copy(r.shortKey[:], key))
}

// hash computes the hash of the key. The record does not keep it, because reads are more
// frequent than removals.
func (r *memoryRecord) hash(seed maphash.Seed) uint64 {
	if r.rare != nil && r.rare.longKey != "" {
		return maphash.String(seed, r.rare.longKey)
	}
	return maphash.Bytes(seed, r.shortKey[:r.keyLen])
}

func (r *memoryRecord) hasKey(key string) bool {
	if r.rare != nil && r.rare.longKey != "" {
		return r.rare.longKey == key
	}
	return string(r.shortKey[:r.keyLen]) == key
}

func (r *memoryRecord) key() string {
	if r.rare != nil && r.rare.longKey != "" {
		return r.rare.longKey
	}
	return string(r.shortKey[:r.keyLen])
}

// A memoryTable finds the records of a shard by their keys. It is made for millions of
// records. They are stored in numbered slots, in chunks, and the index from hashes to slots
// has no pointers. So the garbage collector looks at chunks, and not at a record, a key and
// two maps for each key.
//
// A slot that becomes free is used again for the next record. The memory is given back as
// a whole when no record is left.
type memoryTable struct {
	index  map[uint64]int32 // by the hash of the key: the first slot of a chain, mostly of one
	chunks []*memoryChunk
	free   int32 // the first of the free slots
	used   int32 // slots below that number have been used
}

type memoryChunk [memoryChunkSize]memoryRecord

// memoryChunkSize is small, because each shard of each store has a chunk that is not full.
// With this size, a chunk fills a size class of the allocator almost completely.
const memoryChunkSize = 32

// noSlot ends a chain.
const noSlot = -1

func (t *memoryTable) init() {
	*t = memoryTable{index: make(map[uint64]int32), free: noSlot}
}

// isSpacious reports whether the table is empty and has more room than one chunk.
func (t *memoryTable) isSpacious() bool { return len(t.index) == 0 && len(t.chunks) > 1 }

// at returns the record in a slot that is in use.
func (t *memoryTable) at(slot int32) *memoryRecord {
	return &t.chunks[slot/memoryChunkSize][slot%memoryChunkSize]
}

// inSlot returns the record in a slot, or nil if the slot is free.
func (t *memoryTable) inSlot(slot int32) *memoryRecord {
	if slot >= t.used {
		return nil
	}
	if r := t.at(slot); r.state != 0 {
		return r
	}
	return nil
}

// find returns the record of a key, or nil.
func (t *memoryTable) find(hash uint64, key string) *memoryRecord {
	slot, ok := t.index[hash]
	if !ok {
		return nil
	}
	for slot != noSlot {
		r := t.at(slot)
		if r.hasKey(key) {
			return r
		}
		slot = r.next
	}
	return nil
}

// insert returns a new record for a key that has none.
func (t *memoryTable) insert(hash uint64, key string) *memoryRecord {
	slot := t.free
	if slot != noSlot {
		t.free = t.at(slot).next
	} else {
		slot = t.used
		t.used++
		if slot%memoryChunkSize == 0 {
			t.chunks = append(t.chunks, new(memoryChunk))
		}
	}
	next, ok := t.index[hash]
	if !ok {
		next = noSlot
	}
	t.index[hash] = slot
	r := t.at(slot)
	r.slot, r.next = slot, next
	r.setKey(key)
	return r
}

// remove removes a record and clears its slot.
func (t *memoryTable) remove(r *memoryRecord, hash uint64) {
	if first := t.index[hash]; first != r.slot {
		before := t.at(first)
		for before.next != r.slot {
			before = t.at(before.next)
		}
		before.next = r.next
	} else if r.next != noSlot {
		t.index[hash] = r.next
	} else {
		delete(t.index, hash)
	}
	slot := r.slot
	*r = memoryRecord{next: t.free}
	t.free = slot
}
