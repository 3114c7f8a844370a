package memory

// tidy returns the time and removes a few expired records: of the shard, which is locked, or else of
// another one, or they would stay for as long as all calls are for a few keys. It reads the time under
// the lock, so that the time of a shard never goes back.
func (s *Store) tidy(sh *shard) (now int64) {
	now = s.now()
	if s.expire(sh, now) {
		return now
	}
	if sh.calls++; sh.calls >= callsPerVisit && !s.visit(&s.shards[sh.next], now) {
		sh.calls, sh.next = 0, (sh.next+1)%shardCount
	}
	return now
}

// visit removes a few expired records of a shard unless that has to wait for its lock. It reports
// whether there were any.
func (s *Store) visit(sh *shard, now int64) bool {
	if !sh.mu.TryLock() {
		return false
	}
	defer sh.mu.Unlock()
	return s.expire(sh, now)
}

// makeRoom removes a few expired records of any shard. It reports whether there were any.
func (s *Store) makeRoom() bool {
	for i := range s.shards {
		if s.makeRoomIn(&s.shards[i]) {
			return true
		}
	}
	return false
}

// expire removes a few expired records of the shard. It reports whether there were
// any.
func (s *Store) expire(sh *shard, now int64) bool {
	removed := false
	for range expiredPerCall {
		slot, ok := sh.queue.Expired(now)
		if !ok {
			break
		}
		s.remove(sh, sh.records.entry(slot))
		removed = true
	}
	return removed
}
