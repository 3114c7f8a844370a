// Package expiry keeps the order in which the records of a store expire.
package expiry

import "iter"

// A Queue is a heap of records, with the one that expires first at the front. It knows the
// place of each record, so that the end of a record can move without a search. The zero
// Queue is empty.
//
// Records are known by the numbers of their slots, which are small and dense. It does not
// use container/heap because among a million records nearly every pointer that is followed
// is a cache miss. Here, all that is compared or moved is in two arrays, and the garbage
// collector has nothing to look at.
type Queue struct {
	entries []entry
	places  []int32 // of the entries, by slot
}

type entry struct {
	expires int64
	slot    int32
}

// branches is how many entries one entry stands before. Four of them are one cache line,
// and make the heap half as deep as two would.
const branches = 4

// Push adds a record. A slot that was never used is the next one after the highest.
func (q *Queue) Push(slot int32, expires int64) {
	if int(slot) == len(q.places) {
		q.places = append(q.places, 0)
	}
	q.entries = append(q.entries, entry{})
	q.up(len(q.entries)-1, entry{expires, slot})
}

// Move gives a record another end.
func (q *Queue) Move(slot int32, expires int64) {
	q.fill(int(q.places[slot]), entry{expires, slot})
}

// Remove removes a record.
func (q *Queue) Remove(slot int32) {
	last := len(q.entries) - 1
	moved := q.entries[last]
	q.entries = q.entries[:last]
	if moved.slot != slot {
		q.fill(int(q.places[slot]), moved)
	}
}

// Expired returns a record that has expired by the moment now, if there is one.
func (q *Queue) Expired(now int64) (slot int32, ok bool) {
	if len(q.entries) == 0 || q.entries[0].expires > now {
		return 0, false
	}
	return q.entries[0].slot, true
}

// Len returns how many records there are.
func (q *Queue) Len() int { return len(q.entries) }

// All returns the slots of all records with their ends, in no order.
func (q *Queue) All() iter.Seq2[int32, int64] {
	return func(yield func(int32, int64) bool) {
		for _, e := range q.entries {
			if !yield(e.slot, e.expires) {
				return
			}
		}
	}
}

// fill fills the hole at i with e, or moves the hole to where e belongs.
func (q *Queue) fill(i int, e entry) {
	if i > 0 && e.expires < q.entries[(i-1)/branches].expires {
		q.up(i, e)
	} else {
		q.down(i, e)
	}
}

func (q *Queue) up(i int, e entry) {
	for i > 0 {
		parent := (i - 1) / branches
		if q.entries[parent].expires <= e.expires {
			break
		}
		q.set(i, q.entries[parent])
		i = parent
	}
	q.set(i, e)
}

func (q *Queue) down(i int, e entry) {
	for {
		child := i*branches + 1
		if child >= len(q.entries) {
			break
		}
		for other := child + 1; other < min(i*branches+1+branches, len(q.entries)); other++ {
			if q.entries[other].expires < q.entries[child].expires {
				child = other
			}
		}
		if e.expires <= q.entries[child].expires {
			break
		}
		q.set(i, q.entries[child])
		i = child
	}
	q.set(i, e)
}

func (q *Queue) set(i int, e entry) {
	q.entries[i] = e
	q.places[e.slot] = int32(i)
}
