package memory

// What the tests of the package need of its inside: what is counted, watched and queued, and a table
// whose hashes they choose.

import (
	"hash/maphash"
	"strconv"

	"example.com/idempotency/internal/slab"
	"example.com/idempotency/internal/slotindex"
)

// Bytes returns what the records count for in the limit of bytes.
func (s *Store) Bytes() int64 { return s.room.bytes.Load() }

// ValueSize returns how many bytes of a record are among the values of its shard.
func (s *Store) ValueSize(key string) int {
	sh, hash := s.lock(key)
	defer sh.mu.Unlock()
	return s.find(sh, hash, key, 0).value.Size()
}

// Watched returns how many keys are watched.
func (s *Store) Watched() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].watchers.Len()
		s.shards[i].mu.Unlock()
	}
	return n
}

// QueuesInOrder reports whether each shard's expiry queue has the records of the shard,
// with the moments at which they expire.
func (s *Store) QueuesInOrder() bool {
	n := 0
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		ok := true
		for slot, expires := range sh.queue.All() {
			r := sh.records.entry(slot)
			ok = ok && expires == r.expires && sh.records.find(sh.records.hash(r), sh.records.key(r)) == r
		}
		n += sh.queue.Len()
		sh.mu.Unlock()
		if !ok {
			return false
		}
	}
	return n == s.Len()
}

// Locked returns how many shards somebody has locked.
func (s *Store) Locked() int {
	n := 0
	for i := range s.shards {
		if mu := &s.shards[i].mu; mu.TryLock() {
			mu.Unlock()
		} else {
			n++
		}
	}
	return n
}

// Break loses the index of each shard, and lets the records expire for its queue, so that whatever looks
// at one panics.
func (s *Store) Break() {
	for i := range s.shards {
		sh := &s.shards[i]
		for slot := range sh.queue.All() {
			sh.queue.Move(slot, -1)
		}
		sh.records.index = slotindex.Index[slab.Ref]{}
	}
}

// KeyOfAnEmptyShard returns a key whose shard has no record.
func (s *Store) KeyOfAnEmptyShard() string {
	for i := 0; ; i++ {
		key := strconv.Itoa(i)
		if s.shards[maphash.String(s.seed, key)%shardCount].queue.Len() == 0 {
			return key
		}
	}
}

// A Table is the table of a shard, whose hashes a test can choose.
type Table struct{ table table }

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{}
	t.table.init(maphash.MakeSeed())
	return t
}

// Insert adds a record.
func (t *Table) Insert(hash uint64, key string) { t.table.insert(hash, key) }

// Find returns the key of the record that is found, and whether there is one.
func (t *Table) Find(hash uint64, key string) (string, bool) {
	r := t.table.find(hash, key)
	if r.none() {
		return "", false
	}
	return t.table.key(r), true
}

// Remove removes a record that is there.
func (t *Table) Remove(hash uint64, key string) { t.table.remove(t.table.find(hash, key), hash) }

// Slots returns how many slots have been used.
func (t *Table) Slots() int { return t.table.slots.Len() }
