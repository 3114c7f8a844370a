package memory

// The room of a store: how much each record takes, who has filled the store, and who may still come in.

import (
	"hash/maphash"
	"sync/atomic"

	"example.com/idempotency/store"
)

const (
	// The last part of the room, a quarter, is only for tenants that hold less than a
	// sixteenth of the room. So a tenant that fills the store meets its end before the others.
	reservedPart = 4
	modestPart   = 16

	// tenantParts is in how many parts the use of the room is accounted. Tenants that meet
	// in one part have one share. There are few enough that they cost nothing beside the
	// records, and the number of tenants does not matter.
	tenantParts = 1024

	// recordOverhead is the measured cost of a record without its key, answer and steps:
	// the record itself, its entry in the index, its place in the expiry queue, and what
	// precedes its value in a slab.
	recordOverhead = 185

	// stepOverhead is the cost of the first step of a record without its name and
	// its value. Further steps cost less.
	stepOverhead = 128

	// rareOverhead is the cost of the rare part of a record.
	rareOverhead = 80

	// tagOverhead is the cost of a tag with its place in the index: less where many records have it, and more where one has.
	tagOverhead = 80

	// holdingOverhead is the cost of a place in the index of held records and of claims that
	// say Hold.
	holdingOverhead = 64
)

// A room is how much a store may hold and does hold, in all and for each part of the tenants. Its
// methods may be called concurrently.
type room struct {
	seed       maphash.Seed
	maxEntries int64
	maxBytes   int64
	_          [64]byte // keeps what never changes and what always changes on separate cache lines
	entries    atomic.Int64
	bytes      atomic.Int64
	_          [64]byte
	uses       [tenantParts]use
}

// A use is what the tenants of one part hold.
type use struct{ entries, bytes atomic.Int64 }

// tenantOf returns the part that a claim is accounted in, counted from 1, or 0 for none. Nobody
// can choose a scope that meets that of somebody else in one part: the seed is random.
func (m *room) tenantOf(c *store.Claim) uint16 {
	if c.Tenant == 0 {
		return 0
	}
	return uint16(1 + maphash.Comparable(m.seed, c.Tenant)%tenantParts)
}

// useOf returns the use of a part, or nil if there is no tenant.
func (m *room) useOf(tenant uint16) *use {
	if tenant == 0 {
		return nil
	}
	return &m.uses[tenant-1]
}

// reserve takes room for one more record of a tenant, if there is any.
func (m *room) reserve(more int, tenant uint16) bool {
	size := int64(recordOverhead + more)
	entries, bytes := m.entries.Add(1), m.bytes.Add(size)
	own := m.useOf(tenant)
	if own == nil {
		own = &use{}
	}
	ownEntries, ownBytes := own.entries.Add(1), own.bytes.Add(size)
	late := entries > m.maxEntries-m.maxEntries/reservedPart || bytes > m.maxBytes-m.maxBytes/reservedPart
	modest := ownEntries == 1 || ownEntries <= m.maxEntries/modestPart && ownBytes <= m.maxBytes/modestPart
	if entries <= m.maxEntries && bytes <= m.maxBytes && (tenant == 0 || !late || modest) {
		return true
	}
	m.entries.Add(-1)
	m.bytes.Add(-size)
	own.entries.Add(-1)
	own.bytes.Add(-size)
	return false
}

// hasRoom reports whether there is room for what another attempt under a record of the tenant will
// bring. The record itself has its room already. What the attempt brings is not known yet, so it may go
// beyond the limit, as a first attempt may.
func (m *room) hasRoom(tenant uint16) bool {
	bytes := m.bytes.Load()
	own := m.useOf(tenant)
	late := bytes > m.maxBytes-m.maxBytes/reservedPart
	return bytes <= m.maxBytes &&
		(own == nil || !late || own.entries.Load() == 1 || own.bytes.Load() <= m.maxBytes/modestPart)
}

// full reports whether there is no room for one more record, however small.
func (m *room) full() bool {
	return m.entries.Load() >= m.maxEntries || m.bytes.Load()+recordOverhead > m.maxBytes
}

// giveBack frees the room of a record of that size.
func (m *room) giveBack(size int, tenant uint16) {
	m.entries.Add(-1)
	if own := m.useOf(tenant); own != nil {
		own.entries.Add(-1)
	}
	m.charge(-size, tenant)
}

// charge counts n more bytes for a record of the tenant.
func (m *room) charge(n int, tenant uint16) {
	m.bytes.Add(int64(n))
	if own := m.useOf(tenant); own != nil {
		own.bytes.Add(int64(n))
	}
}

// size returns how much of the store's limit of bytes the record takes.
func (sh *shard) size(r entry) int {
	n := recordOverhead + sh.claimSize(r)
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
func (sh *shard) claimSize(r entry) int {
	n := r.value.Size()
	if rare := sh.records.rareOf(r); rare != nil {
		n += rareClaimRoom(len(rare.sealedKey), len(rare.tags))
	}
	if r.hold {
		n += holdingOverhead
	}
	return n
}

func (s savedStep) size() int { return stepOverhead + len(s.name) + len(s.value) }

// claimRoom returns how much room the first claim of a record takes, besides the key.
func claimRoom(c *store.Claim) int {
	room := 0
	if n := min(len(c.Note), maxNoteLen); n > 0 {
		room = 1 + n
	}
	if c.Hold {
		room += holdingOverhead
	}
	return room + rareClaimRoom(len(c.SealedKey), tagCount(c))
}

// rareClaimRoom is how much room a sealed key and tags take, with the part of the record that they are in.
func rareClaimRoom(sealedKey, tags int) int {
	if sealedKey+tags == 0 {
		return 0
	}
	return rareOverhead + sealedKey + tags*tagOverhead
}
