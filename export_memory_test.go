package idempotency

// Bytes returns what the records count for in the limit of bytes.
func (s *MemoryStore) Bytes() int64 { return s.bytes.Load() }

// Watched returns how many keys are watched.
func (s *MemoryStore) Watched() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].watchers)
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
		ok := len(sh.queue) == len(sh.records)
		for i, e := range sh.queue {
			ok = ok && e.expires == e.record.expires && int(e.record.index) == i &&
				sh.queue[(i-1)/2].expires <= e.expires
		}
		sh.mu.Unlock()
		if !ok {
			return false
		}
	}
	return true
}
