package idempotency

// Bytes returns what the records count for in the limit of bytes.
func (s *MemoryStore) Bytes() int64 { return s.bytes.Load() }

// Watched returns how many keys are watched.
func (s *MemoryStore) Watched() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].watchers.Len()
		s.shards[i].mu.Unlock()
	}
	return n
}

// QueuesInOrder reports whether each record is in its shard's expiry queue, at the
// place that it knows, and none before one that expires earlier.
func (s *MemoryStore) QueuesInOrder() bool {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		ok := true
		for i, e := range sh.queue.entries {
			r := sh.records.at(e.slot)
			ok = ok && e.expires == r.expires && e.slot == r.slot && int(sh.queue.places[e.slot]) == i &&
				sh.queue.entries[max(i-1, 0)/expiryBranches].expires <= e.expires &&
				sh.records.find(r.hash(s.seed), r.key()) == r
		}
		sh.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}

// A MemoryTable is the table of a shard, whose hashes a test can choose.
type MemoryTable struct{ table memoryTable }

// NewMemoryTable returns an empty table.
func NewMemoryTable() *MemoryTable {
	t := &MemoryTable{}
	t.table.init()
	return t
}

// Insert adds a record.
func (t *MemoryTable) Insert(hash uint64, key string) { t.table.insert(hash, key) }

// Find returns the key of the record that is found, and whether there is one.
func (t *MemoryTable) Find(hash uint64, key string) (string, bool) {
	r := t.table.find(hash, key)
	if r == nil {
		return "", false
	}
	return r.key(), true
}

// Remove removes a record that is there.
func (t *MemoryTable) Remove(hash uint64, key string) { t.table.remove(t.table.find(hash, key), hash) }

// Slots returns how many slots there are.
func (t *MemoryTable) Slots() int { return memoryChunkSize * len(t.table.chunks) }
