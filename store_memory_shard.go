package idempotency

import (
	"math"
	"sync"
	"time"
)

// A memoryShard is one part of a [MemoryStore]. All of it, the records included, is
// guarded by mu.
type memoryShard struct {
	mu       sync.Mutex
	records  map[string]*memoryRecord
	queue    expiryQueue
	watchers map[string]map[chan struct{}]struct{}
	_        [16]byte // fills a cache line: neighbours do not slow each other down
}

// A memoryRecord is what is kept for one key. There may be millions, so it is kept
// small: 176 bytes are a size of the allocator, and the end of a lease is computed
// from touched. Moments are nanoseconds of the store's clock.
//
// Records are changed in place. The bytes of an answer or a step never are, because
// they are handed out.
type memoryRecord struct {
	key         string
	answer      []byte
	steps       []memoryStep
	lease       time.Duration
	retention   time.Duration
	touched     int64 // when it was last claimed, renewed, completed, released or held
	expires     int64
	fingerprint Fingerprint
	owner       Owner
	origin      Owner
	attempt     int32
	index       int32 // in the queue; noIndex once removed
	state       State
	hold        bool
	byHand      bool // settled by Resolve
}

// A memoryStep is a recorded part of a run. There are few in a record, and a map would
// cost 400 bytes for the first.
type memoryStep struct {
	name  string
	value []byte
}

// insert adds a record that c has claimed.
func (sh *memoryShard) insert(key string, c Claim, now int64) *memoryRecord {
	r := &memoryRecord{key: key, fingerprint: c.Fingerprint, origin: c.Owner, attempt: 1}
	sh.records[key] = r
	sh.queue.push(r)
	r.grant(sh, c, now)
	return r
}

func (sh *memoryShard) remove(r *memoryRecord) {
	delete(sh.records, r.key)
	sh.queue.remove(r)
}

// touch moves the record to the state, and its end to kept from now.
func (sh *memoryShard) touch(r *memoryRecord, state State, now int64, kept time.Duration) {
	r.state, r.touched = state, now
	r.expires = now + min(int64(kept), math.MaxInt64-now)
	sh.queue.fix(r)
}

// announce wakes those who watch the key.
func (sh *memoryShard) announce(key string) {
	for c := range sh.watchers[key] {
		select {
		case c <- struct{}{}:
		default: // It has a value already that it has not seen.
		}
	}
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
	r.owner, r.hold, r.byHand = c.Owner, c.Hold, false
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
	n := memoryOverhead + len(r.key) + len(r.answer)
	for _, step := range r.steps {
		n += step.size()
	}
	return int64(n)
}

func (s memoryStep) size() int { return memoryStepOverhead + len(s.name) + len(s.value) }

// stepsByName returns the steps as a map of the caller's own.
func (r *memoryRecord) stepsByName() map[string][]byte {
	if len(r.steps) == 0 {
		return nil
	}
	steps := make(map[string][]byte, len(r.steps))
	for _, step := range r.steps {
		steps[step.name] = step.value
	}
	return steps
}
