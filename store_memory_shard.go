package idempotency

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"example.com/idempotency/internal/watch"
)

// A memoryShard is one part of a [MemoryStore]. All of it, the records included, is
// guarded by mu.
type memoryShard struct {
	mu       sync.Mutex
	records  memoryTable
	queue    expiryQueue
	watchers watch.Registry
	_        [24]byte // fills cache lines: neighbours do not slow each other down
}

// A memoryRecord is what is kept for one key. There may be millions, so it is kept
// small; the end of a lease is computed from touched. Moments are nanoseconds of the
// store's clock. In a free slot, all but next is zero.
//
// It is three cache lines: among millions each that is read is a wait for the memory. A
// stranger's key and a free slot are told by the first, and most of what a replay needs
// is in the first two.
//
// Records are changed in place. The bytes of an answer or a step never are, because
// they are handed out.
type memoryRecord struct {
	rare     *memoryRare // nil if there is nothing of it
	keyLen   uint8       // of shortKey
	shortKey [43]byte
	state    State
	hold     bool
	next     int32 // slot of another record with the same hash, or of another free one
	attempt  int32

	fingerprint Fingerprint
	answer      []byte
	expires     int64

	touched   int64 // when it was last claimed, renewed, completed, released or held
	lease     time.Duration
	retention time.Duration
	owner     Owner
	origin    Owner
	slot      int32 // where the record is
}

// memoryRare is what few records have.
type memoryRare struct {
	longKey string // if it does not fit into shortKey
	steps   []memoryStep
}

// A memoryStep is a recorded part of a run. There are few in a record, and a map would
// cost 400 bytes for the first.
type memoryStep struct {
	name  string
	value []byte
}

// insert adds a record that c has claimed.
func (sh *memoryShard) insert(hash uint64, key string, c Claim, now int64) *memoryRecord {
	r := sh.records.insert(hash, key)
	r.fingerprint, r.origin, r.attempt = c.Fingerprint, c.Owner, 1
	sh.queue.push(r.slot, math.MaxInt64) // at the end, where a new record mostly stays
	r.grant(sh, c, now)
	return r
}

func (sh *memoryShard) remove(r *memoryRecord, hash uint64) {
	sh.queue.remove(r.slot)
	sh.records.remove(r, hash)
	if sh.records.isSpacious() {
		sh.records.init()
		sh.queue = expiryQueue{}
	}
}

// touch moves the record to the state, and its end to kept from now.
func (sh *memoryShard) touch(r *memoryRecord, state State, now int64, kept time.Duration) {
	r.state, r.touched = state, now
	r.expires = now + min(int64(kept), math.MaxInt64-now)
	sh.queue.fix(r.slot, r.expires)
}

// claim gives the claim to the caller if it may have it, and tells what stands there.
func (r *memoryRecord) claim(sh *memoryShard, c Claim, now int64) Record {
	lapsed := r.lapsed(now)
	switch {
	case r.fingerprint != c.Fingerprint:
		return r.see(now)
	case r.state == StateClaimed && r.owner == c.Owner:
		// The record was made for this claim, or the claim was sent again, perhaps because
		// the first one had no reply: its caller counts the lease from this one.
		if now != r.touched {
			r.grant(sh, c, now)
		}
	case lapsed && (r.hold || c.Hold):
		r.state = StateHeld
		return r.see(now)
	case lapsed, r.state == StateReleased && r.owner != c.Owner:
		r.attempt++
		r.grant(sh, c, now)
	default:
		return r.see(now)
	}
	out := r.see(now)
	out.Mine = true
	if r.attempt > 1 {
		out.Steps = r.stepsByName()
	}
	return out
}

// grant makes the record the caller's.
func (r *memoryRecord) grant(sh *memoryShard, c Claim, now int64) {
	r.owner, r.hold = c.Owner, c.Hold
	r.lease, r.retention = c.Lease, c.Retention
	sh.touch(r, StateClaimed, now, c.Retention)
}

// lapsed reports whether the record is claimed and its lease has ended.
func (r *memoryRecord) lapsed(now int64) bool {
	return r.state == StateClaimed && now-r.touched >= int64(r.lease)
}

// see returns the record as it is at the moment, without its steps.
func (r *memoryRecord) see(now int64) Record {
	out := Record{
		State:       r.state,
		Attempt:     int(r.attempt),
		Fingerprint: r.fingerprint,
		Origin:      r.origin,
		TTL:         time.Duration(r.expires - now),
		Age:         time.Duration(now - r.touched),
		Answer:      r.answer,
	}
	switch {
	case r.lapsed(now) && r.hold:
		out.State = StateHeld
	case r.state == StateClaimed:
		out.Lease = r.lease - out.Age
	}
	return out
}

// held reports whether the record is held, or will be as soon as a claim finds it.
func (r *memoryRecord) held(now int64) bool {
	return r.state == StateHeld || r.lapsed(now) && r.hold
}

// size returns what the record counts for in the store's limit of bytes.
func (r *memoryRecord) size() int64 {
	n := memoryOverhead + int(r.keyLen) + len(r.answer)
	if r.rare != nil {
		n += len(r.rare.longKey)
		for _, step := range r.rare.steps {
			n += step.size()
		}
	}
	return int64(n)
}

func (s memoryStep) size() int { return memoryStepOverhead + len(s.name) + len(s.value) }

// stepsByName returns the steps as a map of the caller's own.
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

// setKey is called once. A key of the length that guards make stands in the record
// itself, so that comparing it with another follows no pointer.
func (r *memoryRecord) setKey(key string) {
	if len(key) > len(r.shortKey) {
		r.rare = &memoryRare{longKey: key}
		return
	}
	r.keyLen = uint8(copy(r.shortKey[:], key))
}

// hash is that of the key. It is not kept: records that go are fewer than reads.
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
