package idempotency

import (
	"hash/maphash"
	"sync/atomic"
)

// How full a MemoryStore is, what each record takes of it, who has filled it, and who may still come in.

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

// A memoryUse is what the tenants of one part hold.
type memoryUse struct{ entries, bytes atomic.Int64 }

// tenantOf returns the part that a claim is accounted in, counted from 1, or 0 for none. Nobody
// can choose a scope that meets that of somebody else in one part: the seed is random.
func (s *MemoryStore) tenantOf(c Claim) uint16 {
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

// charge counts n more bytes for a record.
func (s *MemoryStore) charge(r *memoryRecord, n int) {
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
		s.remove(sh, sh.records.at(slot))
		removed = true
	}
	return removed
}

// remove removes the record from the shard and gives its room back.
func (s *MemoryStore) remove(sh *memoryShard, r *memoryRecord) {
	s.entries.Add(-1)
	s.charge(r, -int(r.size()))
	if own := s.useOf(r.tenant); own != nil {
		own.entries.Add(-1)
	}
	sh.remove(r, r.hash(s.seed))
}

// sealedKeyRoom is how much room a sealed key takes, with the part of the record that it is in.
func sealedKeyRoom(n int) int {
	if n == 0 {
		return 0
	}
	return memoryRareOverhead + n
}

// size returns how much of the store's limit of bytes the record takes.
func (r *memoryRecord) size() int64 {
	n := memoryOverhead + int(r.keyLen) + len(r.answer) + r.claimSize()
	if r.rare != nil {
		n += len(r.rare.longKey)
		for _, step := range r.rare.steps {
			n += step.size()
		}
	}
	return int64(n)
}

// claimSize returns how much of that the claims of the record have brought.
func (r *memoryRecord) claimSize() (n int) {
	n = len(r.notes)
	if r.rare != nil {
		n += sealedKeyRoom(len(r.rare.sealedKey))
	}
	if r.hold {
		n += memoryHolding
	}
	return n
}

func (s memoryStep) size() int { return memoryStepOverhead + len(s.name) + len(s.value) }
