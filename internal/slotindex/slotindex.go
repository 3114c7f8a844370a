// Package slotindex finds records by the hashes of their keys. The records have slots, which are
// small numbers, so an index is one slice without a pointer: the garbage collector does not look into
// it, and a lookup among millions of records waits for the memory once.
package slotindex

// An Index has the slots of any number of records. It is a hash table with linear probing, of which
// at most three quarters are in use. The zero Index is empty.
//
// Hashes must be random to whoever chooses the keys.
type Index struct {
	entries []entry // a power of two of them
	n       int
}

// An entry is a record, or nothing if place is 0.
type entry struct {
	hash  uint32
	place uint32 // its slot, counted from 1
}

// minEntries is the size of an index with a few records.
const minEntries = 16

// Len returns the number of records.
func (x *Index) Len() int { return x.n }

// Find returns the slot of a record with the hash that is the one looked for. Of several records with
// one hash, is tells which.
func (x *Index) Find(hash uint32, is func(slot int32) bool) (slot int32, ok bool) {
	if x.n == 0 {
		return 0, false
	}
	for i := x.home(hash); x.entries[i].place != 0; i = x.after(i) {
		if e := x.entries[i]; e.hash == hash && is(e.slot()) {
			return e.slot(), true
		}
	}
	return 0, false
}

// Add adds a record, which is not in the index.
func (x *Index) Add(hash uint32, slot int32) {
	if x.n >= len(x.entries)/4*3 {
		x.grow()
	}
	x.put(entry{hash, uint32(slot) + 1})
	x.n++
}

// Remove removes a record, which is in the index.
func (x *Index) Remove(hash uint32, slot int32) {
	i := x.home(hash)
	for x.entries[i] != (entry{hash, uint32(slot) + 1}) {
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
	x.entries[i] = entry{}
}

func (x *Index) grow() {
	old := x.entries
	x.entries = make([]entry, max(minEntries, 2*len(old)))
	for _, e := range old {
		if e.place != 0 {
			x.put(e)
		}
	}
}

// put puts an entry into the first gap from its home on.
func (x *Index) put(e entry) {
	i := x.home(e.hash)
	for x.entries[i].place != 0 {
		i = x.after(i)
	}
	x.entries[i] = e
}

func (e entry) slot() int32 { return int32(e.place - 1) }

// home returns where the search for a hash begins.
func (x *Index) home(hash uint32) uint32 { return hash & uint32(len(x.entries)-1) }

// after returns the next place.
func (x *Index) after(i uint32) uint32 { return (i + 1) & uint32(len(x.entries)-1) }

// distance returns how far it is to a place from another one.
func (x *Index) distance(from, to uint32) uint32 { return (to - from) & uint32(len(x.entries)-1) }
