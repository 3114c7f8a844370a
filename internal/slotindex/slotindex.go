// Package slotindex finds records by the hashes of their keys. The records have slots, which are
// small numbers, so an index is one slice without a pointer: the garbage collector does not look into
// it, and a lookup among millions of records waits for the memory once.
package slotindex

// An Index has the slots of any number of records. It is a hash table with linear probing, of which
// at most three quarters are in use. The zero Index is empty.
//
// An entry has room for a V, which has no pointer: what a reader needs to know of a record as early as
// its slot. Then it need not wait for the record before it goes on.
//
// Hashes must be random to whoever chooses the keys.
type Index[V any] struct {
	entries []entry[V] // a power of two of them
	n       int
}

// An entry is a record, or nothing if place is 0.
type entry[V any] struct {
	hash  uint32
	place uint32 // its slot, counted from 1
	value V
}

// minEntries is the size of an index with a few records.
const minEntries = 16

// Len returns the number of records.
func (x *Index[V]) Len() int { return x.n }

// Find returns the slot of a record with the hash that is the one looked for, and its V, or nil if
// there is no such record. Of several records with one hash, is tells which. The V stays where it is
// until a record comes or goes.
func (x *Index[V]) Find(hash uint32, is func(slot int32) bool) (slot int32, value *V) {
	if x.n == 0 {
		return 0, nil
	}
	for i := x.home(hash); x.entries[i].place != 0; i = x.after(i) {
		if e := &x.entries[i]; e.hash == hash && is(e.slot()) {
			return e.slot(), &e.value
		}
	}
	return 0, nil
}

// Add adds a record, which is not in the index, and returns its V.
func (x *Index[V]) Add(hash uint32, slot int32) *V {
	if x.n >= len(x.entries)/4*3 {
		x.grow()
	}
	x.n++
	return &x.put(entry[V]{hash: hash, place: uint32(slot) + 1}).value
}

// Remove removes a record, which is in the index.
func (x *Index[V]) Remove(hash uint32, slot int32) {
	i := x.home(hash)
	for x.entries[i].slot() != slot {
		i = x.after(i)
	}
	x.n--
	// Those behind the gap that would not be found across it move into it.
	for j := x.after(i); x.entries[j].place != 0; j = x.after(j) {
		if x.distance(x.home(x.entries[j].hash), j) >= x.distance(i, j) {
			x.entries[i] = x.entries[j]
			i = j
		}
	}
	x.entries[i] = entry[V]{}
}

func (x *Index[V]) grow() {
	old := x.entries
	x.entries = make([]entry[V], max(minEntries, 2*len(old)))
	for _, e := range old {
		if e.place != 0 {
			x.put(e)
		}
	}
}

// put puts an entry into the first gap from its home on, and returns where that is.
func (x *Index[V]) put(e entry[V]) *entry[V] {
	i := x.home(e.hash)
	for x.entries[i].place != 0 {
		i = x.after(i)
	}
	x.entries[i] = e
	return &x.entries[i]
}

func (e *entry[V]) slot() int32 { return int32(e.place - 1) }

// home returns where the search for a hash begins.
func (x *Index[V]) home(hash uint32) uint32 { return hash & uint32(len(x.entries)-1) }

// after returns the next place.
func (x *Index[V]) after(i uint32) uint32 { return (i + 1) & uint32(len(x.entries)-1) }

// distance returns how far it is to a place from another one.
func (x *Index[V]) distance(from, to uint32) uint32 { return (to - from) & uint32(len(x.entries)-1) }
