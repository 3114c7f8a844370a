package memory

// How the records of a shard are found by their keys, and what of a record only few records have.

import (
	"hash/maphash"

	"example.com/idempotency/internal/chunks"
	"example.com/idempotency/internal/slab"
	"example.com/idempotency/internal/slotindex"
	"example.com/idempotency/store"
)

// A table finds the records of a shard by their keys. It is made for millions of
// records. They are stored in numbered slots. Neither the slots nor the index have pointers, so
// the garbage collector looks into none of them.
//
// A slot that becomes free is used again for the next record. The memory is given back as
// a whole when no record is left.
type table struct {
	seed  maphash.Seed
	index slotindex.Index[slab.Ref] // by the hashes of the keys
	slots chunks.Slice[record]
	rare  map[int32]*rarePart // by slot, of the few records that have such a part
	free  int32               // the first of the free slots
}

// A rarePart is the part of a record that few records have.
type rarePart struct {
	longKey   string // if it does not fit into shortKey
	steps     []savedStep
	sealedKey string
	tags      []store.Tag
	large     []byte // an answer of more than maxSmallAnswer
}

// A savedStep is a recorded part of a run. A record has few of them, and a map would cost
// 400 bytes for the first.
type savedStep struct {
	name  string
	value []byte
}

// step returns the step of that name, or nil. A record without a rare part has none.
func (m *rarePart) step(name string) *savedStep {
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

// noSlot ends the chain of the free slots.
const noSlot = -1

// fewSlots is how many slots an empty table may keep.
const fewSlots = 32

func (t *table) init(seed maphash.Seed) {
	*t = table{seed: seed, free: noSlot}
}

// isSpacious reports whether the table is empty and has room for more than a few records.
func (t *table) isSpacious() bool { return t.index.Len() == 0 && t.slots.Len() > fewSlots }

// at returns the record in a slot, without its value.
func (t *table) at(slot int32) entry {
	return entry{record: t.slots.At(int(slot)), slot: slot}
}

// entry returns the record in a slot that has been used, if there is one.
func (t *table) entry(slot int32) entry {
	r := t.at(slot)
	if _, r.value = t.index.Find(indexHash(t.hash(r)), func(other int32) bool { return other == slot }); r.value == nil {
		return entry{}
	}
	return r
}

// Ref implements [slab.Table].
func (t *table) Ref(slot int32) *slab.Ref { return t.entry(slot).value }

// rareOf returns the rare part of a record, or nil if it has none.
func (t *table) rareOf(r entry) *rarePart {
	if !r.hasRare {
		return nil
	}
	return t.rare[r.slot]
}

// addRare returns the rare part of a record, which gets one if it has none.
func (t *table) addRare(r entry) *rarePart {
	if r.hasRare {
		return t.rare[r.slot]
	}
	if t.rare == nil {
		t.rare = make(map[int32]*rarePart)
	}
	rare := new(rarePart)
	r.hasRare, t.rare[r.slot] = true, rare
	return rare
}

// setKey sets the key of a new record. A key of the length that guards make is stored in
// the record itself.
func (t *table) setKey(r entry, key string) {
	if len(key) > len(r.shortKey) {
		r.keyLen = isLong
		t.addRare(r).longKey = key
		return
	}
	r.keyLen = uint8(copy(r.shortKey[:], key))
}

// hash computes the hash of the key. The record does not keep it, because reads are more
// frequent than removals.
func (t *table) hash(r entry) uint64 {
	if r.keyLen == isLong {
		return maphash.String(t.seed, t.rareOf(r).longKey)
	}
	return maphash.Bytes(t.seed, r.shortKey[:r.keyLen])
}

func (t *table) hasKey(r entry, key string) bool {
	if r.keyLen == isLong {
		return t.rareOf(r).longKey == key
	}
	return string(r.shortKey[:r.keyLen]) == key
}

func (t *table) key(r entry) string {
	if r.keyLen == isLong {
		return t.rareOf(r).longKey
	}
	return string(r.shortKey[:r.keyLen])
}

// isOwn reports whether a record is one of the library itself.
func (*table) isOwn(r entry) bool { return r.keyLen != isLong && store.IsOwn(string(r.shortKey[:1])) }

// find returns the record of a key, if there is one.
func (t *table) find(hash uint64, key string) entry {
	slot, value := t.index.Find(indexHash(hash), func(slot int32) bool { return t.hasKey(t.at(slot), key) })
	if value == nil {
		return entry{}
	}
	r := t.at(slot)
	r.value = value
	return r
}

// indexHash returns the part of a hash that the index uses. Other bits of it choose the shard.
func indexHash(hash uint64) uint32 { return uint32(hash >> 32) }

// insert returns a new record for a key that has none.
func (t *table) insert(hash uint64, key string) entry {
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
func (t *table) remove(r entry, hash uint64) {
	t.index.Remove(indexHash(hash), r.slot)
	if r.hasRare {
		delete(t.rare, r.slot)
	}
	*r.record = record{next: t.free}
	t.free = r.slot
}
