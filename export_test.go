package idempotency

import (
	"hash/maphash"

	"example.com/idempotency/internal/answer"
)

// This file shows the external tests of the package what they need of its inside: first
// keys and fingerprints, then what is sealed, then what waits, then the memory store.

// The functions that make keys and fingerprints from what a request says.
var (
	KeyFromHeader = keyFromHeader
	FingerprintOf = fingerprintOf
)

// StoreKey returns the name under which a store keeps a key's record.
func StoreKey(scope, value string) string { return Key{Scope: scope, Value: value}.storeKey() }

// Unseal reads a stored answer as a guard with that sealer does.
func Unseal(sealer Sealer, stored []byte, key string, fp Fingerprint) error {
	_, err := (&settings{sealer: sealer}).unseal(stored, key, fp, nil)
	return err
}

// UnsealStep reads the stored value of a step likewise.
func UnsealStep(sealer Sealer, stored []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	return (&settings{sealer: sealer}).unsealStep(stored, key, fp, name)
}

// SealStep returns the stored form of the value of a step.
func SealStep(sealer Sealer, value []byte, key string, fp Fingerprint, name string) ([]byte, error) {
	return (&settings{sealer: sealer}).sealStep(value, key, fp, name)
}

// Seal returns the stored form of an answer with that body.
func Seal(sealer Sealer, body, key string, fp Fingerprint) ([]byte, error) {
	a := &answer.Answer{Kind: answer.KindKept, Status: 200, Body: []byte(body)}
	return (&settings{sealer: sealer}).seal(a, key, fp)
}

// Waiting returns how many requests wait for the answer of another.
func (g *Guard) Waiting() int {
	g.core.room.mu.Lock()
	defer g.core.room.mu.Unlock()
	return g.core.room.all.n
}

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

// QueuesInOrder reports whether each shard's expiry queue has the records of the shard,
// with the moments at which they expire.
func (s *MemoryStore) QueuesInOrder() bool {
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

// A MemoryTable is the table of a shard, whose hashes a test can choose.
type MemoryTable struct{ table memoryTable }

// NewMemoryTable returns an empty table.
func NewMemoryTable() *MemoryTable {
	t := &MemoryTable{}
	t.table.init(maphash.MakeSeed())
	return t
}

// Insert adds a record.
func (t *MemoryTable) Insert(hash uint64, key string) { t.table.insert(hash, key) }

// Find returns the key of the record that is found, and whether there is one.
func (t *MemoryTable) Find(hash uint64, key string) (string, bool) {
	r := t.table.find(hash, key)
	if r.none() {
		return "", false
	}
	return t.table.key(r), true
}

// Remove removes a record that is there.
func (t *MemoryTable) Remove(hash uint64, key string) { t.table.remove(t.table.find(hash, key), hash) }

// Slots returns how many slots have been used.
func (t *MemoryTable) Slots() int { return t.table.slots.Len() }
