package idempotency

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
