package memory

// A part of the store, and how a record changes in it: its state, and what it keeps beside itself.

import (
	"bytes"
	"sync"
	"time"

	"example.com/idempotency/internal/expiry"
	"example.com/idempotency/internal/history"
	"example.com/idempotency/internal/intern"
	"example.com/idempotency/internal/oldest"
	"example.com/idempotency/internal/slab"
	"example.com/idempotency/internal/watch"
	"example.com/idempotency/store"
)

// A shard is one part of a [Store]. mu guards all of it, including the
// records.
type shard struct {
	mu       sync.Mutex
	records  table
	values   slab.Arena   // of each record, its notes and then its answer, unless that is large
	labels   intern.Table // of the records
	queue    expiry.Queue
	watchers watch.Registry
	holding  *oldest.Index // nil until the first record enters it
	tags     tagIndex      // nil until the first record has one
	calls    uint8         // that have found no expired record, since the last visit to another shard
	next     uint8         // the shard to visit
	_        [62]byte      // fills the last cache line, so that shards do not share one
}

func (sh *shard) remove(r entry, hash uint64) {
	if r.is(indexed) {
		sh.holding.Leave(r.slot)
	}
	sh.dropTags(r)
	sh.queue.Remove(r.slot)
	sh.values.Drop(&sh.records, r.value)
	sh.labels.Release(r.label)
	sh.records.remove(r, hash)
	if sh.records.isSpacious() {
		sh.records.init(sh.records.seed)
		sh.queue, sh.values, sh.tags = expiry.Queue{}, slab.Arena{}, nil
	}
}

// touch puts the record into the state and lets it expire after kept.
func (sh *shard) touch(r entry, state store.State, now int64, kept time.Duration) {
	r.state, r.touched = state, now
	r.flags &^= byLapse
	r.expires = now + min(int64(kept), never-now)
	sh.queue.Move(r.slot, r.expires)
	sh.index(r, now)
}

// index keeps the index of held records, and of claims that say Hold, as the state of a record
// says.
func (sh *shard) index(r entry, now int64) {
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

// maxSmallAnswer is the size up to which answers are among the values of their shard. There,
// larger ones would waste room, and they are copied without the lock.
const maxSmallAnswer = 8 << 10

// maxNoteLen is how much of a note is kept.
const maxNoteLen = 64

// keepNote adds what the claim leaves to the history, when it is granted.
func (sh *shard) keepNote(r entry, c *store.Claim) {
	last := r.label
	r.label = sh.labels.Take(c.Label)
	sh.labels.Release(last)
	if len(c.SealedKey) > 0 {
		sh.records.addRare(r).sealedKey = string(c.SealedKey)
	}
	sh.keepTags(r, c)
	if len(c.Note) > 0 {
		var room [2 * maxNoteLen]byte
		old, _ := sh.values.Value(*r.value)
		notes := history.Append(room[:0], old, c.Note[:min(len(c.Note), maxNoteLen)])
		sh.values.Set(&sh.records, r.slot, r.value, notes, nil)
	}
}

// maxDecisionLen is how much of the note of a decision is kept.
const maxDecisionLen = 512

// keepDecision adds the note of a decision, and returns how many bytes the record has grown by. There is no
// answer yet.
func (sh *shard) keepDecision(r entry, note []byte) int {
	if len(note) == 0 {
		return 0
	}
	return sh.setNotes(r, store.AppendDecision, note[:min(len(note), maxDecisionLen)])
}

// replaceNote puts another note in place of that of the claim, and returns as keepDecision.
func (sh *shard) replaceNote(r entry, note []byte) int {
	if len(note) == 0 {
		return 0
	}
	return sh.setNotes(r, store.ReplaceNote, note[:min(len(note), maxNoteLen)])
}

func (sh *shard) setNotes(r entry, with func(notes, note []byte) []byte, note []byte) int {
	old, _ := sh.values.Value(*r.value)
	before := r.value.Size()
	sh.values.Set(&sh.records, r.slot, r.value, with(old, note), nil)
	return r.value.Size() - before
}

// keepAnswer records the answer, for good. A large one is in memory of its own already: see ownMemory.
func (sh *shard) keepAnswer(r entry, answer []byte) {
	notes, _ := sh.values.Value(*r.value)
	switch {
	case len(answer) > maxSmallAnswer:
		sh.records.addRare(r).large = answer
	case len(notes)+len(answer) > slab.MaxValue: // there are many decisions
		sh.records.addRare(r).large = bytes.Clone(answer)
	default:
		sh.values.Set(&sh.records, r.slot, r.value, notes, answer)
	}
}

// ownMemory returns a copy of a large answer. The copy is made before the lock is taken.
func ownMemory(answer []byte) []byte {
	if len(answer) > maxSmallAnswer {
		return bytes.Clone(answer)
	}
	return answer
}
