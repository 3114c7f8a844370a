package idempotency

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"example.com/idempotency/internal/history"
	"example.com/idempotency/store"
)

// The room of a MemoryStore: where the parts of a record are that it does not hold itself, how much each
// record takes, who has filled the store, and who may still come in.

const (
	// The last part of the room, a quarter, is only for tenants that hold less than a
	// sixteenth of the room. So a tenant that fills the store meets its end before the others.
	memoryReserve = 4
	memoryShare   = 16

	// memoryTenants is in how many parts the use of the room is accounted. Tenants that meet
	// in one part have one share. There are few enough that they cost nothing beside the
	// records, and the number of tenants does not matter.
	memoryTenants = 1024
)

// A memoryRare is the part of a record that few records have.
type memoryRare struct {
	longKey   string // if it does not fit into shortKey
	steps     []memoryStep
	sealedKey string
	large     []byte // an answer of more than maxSmallAnswer
}

// maxSmallAnswer is the size up to which answers are among the values of their shard. There,
// larger ones would waste room, and they are copied without the lock.
const maxSmallAnswer = 8 << 10

// maxNoteLen is how much of a note is kept.
const maxNoteLen = 64

// A memoryStep is a recorded part of a run. A record has few of them, and a map would cost
// 400 bytes for the first.
type memoryStep struct {
	name  string
	value []byte
}

// keepNote adds what the claim leaves to the history, when it is granted.
func (sh *memoryShard) keepNote(r memoryEntry, c store.Claim) {
	last := r.label
	r.label = sh.labels.Take(c.Label)
	sh.labels.Release(last)
	if len(c.SealedKey) > 0 {
		sh.records.addRare(r).sealedKey = string(c.SealedKey)
	}
	if len(c.Note) > 0 {
		var room [2 * maxNoteLen]byte
		old, _ := sh.values.Value(*r.value)
		notes := history.Append(room[:0], old, c.Note[:min(len(c.Note), maxNoteLen)])
		sh.values.Set(&sh.records, r.slot, r.value, notes, nil)
	}
}

// keepAnswer records the answer, for good. A large one is in memory of its own already: see ownMemory.
func (sh *memoryShard) keepAnswer(r memoryEntry, answer []byte) {
	if len(answer) > maxSmallAnswer {
		sh.records.addRare(r).large = answer
		return
	}
	notes, _ := sh.values.Value(*r.value)
	sh.values.Set(&sh.records, r.slot, r.value, notes, answer)
}

// ownMemory returns a copy of a large answer. The copy is made before the lock is taken.
func ownMemory(answer []byte) []byte {
	if len(answer) > maxSmallAnswer {
		return bytes.Clone(answer)
	}
	return answer
}

// sealedKey returns a copy of the sealed key, or nil if there is none.
func (sh *memoryShard) sealedKey(r memoryEntry) []byte {
	rare := sh.records.rareOf(r)
	if rare == nil || rare.sealedKey == "" {
		return nil
	}
	return []byte(rare.sealedKey)
}

// stepsByName returns the steps as a new map.
func (sh *memoryShard) stepsByName(r memoryEntry) map[string][]byte {
	rare := sh.records.rareOf(r)
	if rare == nil || len(rare.steps) == 0 {
		return nil
	}
	steps := make(map[string][]byte, len(rare.steps))
	for _, step := range rare.steps {
		steps[step.name] = step.value
	}
	return steps
}

// step returns the step of that name, or nil. A record without a rare part has none.
func (m *memoryRare) step(name string) *memoryStep {
	if m == nil {
		return nil
	}
	for i := range m.steps {
		if m.steps[i].name == name {
			return &m.steps[i]
		}
	}
	return nil
}

// A memoryUse is what the tenants of one part hold.
type memoryUse struct{ entries, bytes atomic.Int64 }

// tenantOf returns the part that a claim is accounted in, counted from 1, or 0 for none. Nobody
// can choose a scope that meets that of somebody else in one part: the seed is random.
func (s *MemoryStore) tenantOf(c store.Claim) uint16 {
	if c.Tenant == 0 {
		return 0
	}
	return uint16(1 + maphash.Comparable(s.seed, c.Tenant)%memoryTenants)
}

// useOf returns the use of a part, or nil if there is no tenant.
func (s *MemoryStore) useOf(tenant uint16) *memoryUse {
	if tenant == 0 {
		return nil
	}
	return &s.uses[tenant-1]
}

// reserve takes room for one more record of a tenant, if there is any.
func (s *MemoryStore) reserve(more int, tenant uint16) bool {
	size := int64(memoryOverhead + more)
	entries, bytes := s.entries.Add(1), s.bytes.Add(size)
	own := s.useOf(tenant)
	if own == nil {
		own = &memoryUse{}
	}
	ownEntries, ownBytes := own.entries.Add(1), own.bytes.Add(size)
	late := entries > s.maxEntries-s.maxEntries/memoryReserve || bytes > s.maxBytes-s.maxBytes/memoryReserve
	modest := ownEntries == 1 || ownEntries <= s.maxEntries/memoryShare && ownBytes <= s.maxBytes/memoryShare
	if entries <= s.maxEntries && bytes <= s.maxBytes && (tenant == 0 || !late || modest) {
		return true
	}
	s.entries.Add(-1)
	s.bytes.Add(-size)
	own.entries.Add(-1)
	own.bytes.Add(-size)
	return false
}

// hasRoom reports whether there is room for what another attempt under a record of the tenant will
// bring. The record itself has its room already. What the attempt brings is not known yet, so it may go
// beyond the limit, as a first attempt may.
func (s *MemoryStore) hasRoom(tenant uint16) bool {
	bytes := s.bytes.Load()
	own := s.useOf(tenant)
	late := bytes > s.maxBytes-s.maxBytes/memoryReserve
	return bytes <= s.maxBytes &&
		(own == nil || !late || own.entries.Load() == 1 || own.bytes.Load() <= s.maxBytes/memoryShare)
}

// charge counts n more bytes for a record.
func (s *MemoryStore) charge(r memoryEntry, n int) {
	s.bytes.Add(int64(n))
	if own := s.useOf(r.tenant); own != nil {
		own.bytes.Add(int64(n))
	}
}

// makeRoom removes a few expired records of any shard. It reports whether there were any.
func (s *MemoryStore) makeRoom() bool {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		removed := s.expire(sh, s.now())
		sh.mu.Unlock()
		if removed {
			return true
		}
	}
	return false
}

// expire removes a few expired records of the shard. It reports whether there were
// any.
func (s *MemoryStore) expire(sh *memoryShard, now int64) bool {
	removed := false
	for range memoryExpirePerCall {
		slot, ok := sh.queue.Expired(now)
		if !ok {
			break
		}
		s.remove(sh, sh.records.entry(slot))
		removed = true
	}
	return removed
}

// remove removes the record from the shard and gives its room back.
func (s *MemoryStore) remove(sh *memoryShard, r memoryEntry) {
	s.entries.Add(-1)
	s.charge(r, -sh.size(r))
	if own := s.useOf(r.tenant); own != nil {
		own.entries.Add(-1)
	}
	sh.remove(r, sh.records.hash(r))
}

// sealedKeyRoom is how much room a sealed key takes, with the part of the record that it is in.
func sealedKeyRoom(n int) int {
	if n == 0 {
		return 0
	}
	return memoryRareOverhead + n
}

// size returns how much of the store's limit of bytes the record takes.
func (sh *memoryShard) size(r memoryEntry) int {
	n := memoryOverhead + sh.claimSize(r)
	if r.keyLen != isLong {
		n += int(r.keyLen)
	}
	if rare := sh.records.rareOf(r); rare != nil {
		n += len(rare.longKey) + len(rare.large)
		for _, step := range rare.steps {
			n += step.size()
		}
	}
	return n
}

// claimSize returns how much of that the claims of the record have brought.
func (sh *memoryShard) claimSize(r memoryEntry) int {
	n := r.value.Size()
	if rare := sh.records.rareOf(r); rare != nil {
		n += sealedKeyRoom(len(rare.sealedKey))
	}
	if r.hold {
		n += memoryHolding
	}
	return n
}

func (s memoryStep) size() int { return memoryStepOverhead + len(s.name) + len(s.value) }
