package pgstore

import (
	"hash/maphash"
	"sync/atomic"
)

// A met remembers for which keys there lately was a record, so that their next claims read it before
// they would insert one: that takes a third less time. It only chooses the statement. A claim decides
// by the row that it reads, and inserts one if there is none, so a key that is remembered in vain, or
// forgotten for another one with the same place, costs time and nothing else.
type met struct {
	seed  maphash.Seed
	marks [1 << 14]atomic.Uint64 // hashes of keys, each in the place that its last bits name
}

func newMet() *met { return &met{seed: maphash.MakeSeed()} }

// place returns where a key is remembered, and by what.
func (m *met) place(key string) (place *atomic.Uint64, hash uint64) {
	hash = maphash.String(m.seed, key)
	return &m.marks[hash%uint64(len(m.marks))], hash
}

func (m *met) has(key string) bool {
	place, hash := m.place(key)
	return place.Load() == hash
}

func (m *met) add(key string) {
	if place, hash := m.place(key); place.Load() != hash {
		place.Store(hash)
	}
}
