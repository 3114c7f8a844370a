package idempotency

// An expiryQueue is a heap of records, the one that expires first in front. It knows
// the place of each record, so that its end can be moved without a search.
//
// It is no container/heap, and knows records by the number of their slot, because among
// a million records nearly every pointer that is followed is a cache miss: what is
// compared and what is moved is all in two arrays. They have nothing for the garbage
// collector to look at.
type expiryQueue struct {
	entries []expiryEntry
	places  []int32 // by slot
}

type expiryEntry struct {
	expires int64
	slot    int32
}

// expiryBranches is how many entries one entry stands before. Four of them are one cache
// line, and make the heap half as deep as two would.
const expiryBranches = 4

// push adds a record.
func (q *expiryQueue) push(slot int32, expires int64) {
	if int(slot) == len(q.places) {
		q.places = append(q.places, 0)
	}
	q.entries = append(q.entries, expiryEntry{})
	q.up(len(q.entries)-1, expiryEntry{expires, slot})
}

// fix moves a record to its place after its end has changed.
func (q *expiryQueue) fix(slot int32, expires int64) {
	q.settle(int(q.places[slot]), expiryEntry{expires, slot})
}

// remove removes a record.
func (q *expiryQueue) remove(slot int32) {
	last := len(q.entries) - 1
	moved := q.entries[last]
	q.entries = q.entries[:last]
	if moved.slot != slot {
		q.settle(int(q.places[slot]), moved)
	}
}

// settle fills the hole at i with e, or moves the hole to where e belongs.
func (q *expiryQueue) settle(i int, e expiryEntry) {
	if i > 0 && e.expires < q.entries[(i-1)/expiryBranches].expires {
		q.up(i, e)
	} else {
		q.down(i, e)
	}
}

func (q *expiryQueue) up(i int, e expiryEntry) {
	for i > 0 {
		parent := (i - 1) / expiryBranches
		if q.entries[parent].expires <= e.expires {
			break
		}
		q.set(i, q.entries[parent])
		i = parent
	}
	q.set(i, e)
}

func (q *expiryQueue) down(i int, e expiryEntry) {
	for {
		child := i*expiryBranches + 1
		if child >= len(q.entries) {
			break
		}
		for other := child + 1; other < min(i*expiryBranches+1+expiryBranches, len(q.entries)); other++ {
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

func (q *expiryQueue) set(i int, e expiryEntry) {
	q.entries[i] = e
	q.places[e.slot] = int32(i)
}
