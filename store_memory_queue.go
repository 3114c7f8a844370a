package idempotency

// An expiryQueue is a heap of records, the one that expires first in front. Each
// record knows its place, so that its end can be moved without a search.
//
// It is no container/heap because it keeps the ends beside the pointers: among a
// million records nearly every pointer that is followed is a cache miss.
type expiryQueue []expiryEntry

type expiryEntry struct {
	expires int64
	record  *memoryRecord
}

// noIndex is the place of a record that is not in the queue any more.
const noIndex = -1

// push adds the record.
func (q *expiryQueue) push(r *memoryRecord) {
	*q = append(*q, expiryEntry{})
	q.up(len(*q)-1, expiryEntry{r.expires, r})
}

// fix moves the record to its place after its end has changed.
func (q *expiryQueue) fix(r *memoryRecord) {
	q.settle(int(r.index), expiryEntry{r.expires, r})
}

// remove removes the record.
func (q *expiryQueue) remove(r *memoryRecord) {
	last := len(*q) - 1
	moved := (*q)[last]
	(*q)[last] = expiryEntry{} // Or the array would keep the record alive.
	*q = (*q)[:last]
	if moved.record != r {
		q.settle(int(r.index), moved)
	}
	r.index = noIndex
}

// settle fills the hole at i with e, or moves the hole to where e belongs.
func (q *expiryQueue) settle(i int, e expiryEntry) {
	if i > 0 && e.expires < (*q)[(i-1)/2].expires {
		q.up(i, e)
	} else {
		q.down(i, e)
	}
}

func (q *expiryQueue) up(i int, e expiryEntry) {
	for i > 0 {
		parent := (i - 1) / 2
		if (*q)[parent].expires <= e.expires {
			break
		}
		q.set(i, (*q)[parent])
		i = parent
	}
	q.set(i, e)
}

func (q *expiryQueue) down(i int, e expiryEntry) {
	for {
		child := 2*i + 1
		if child >= len(*q) {
			break
		}
		if right := child + 1; right < len(*q) && (*q)[right].expires < (*q)[child].expires {
			child = right
		}
		if e.expires <= (*q)[child].expires {
			break
		}
		q.set(i, (*q)[child])
		i = child
	}
	q.set(i, e)
}

func (q *expiryQueue) set(i int, e expiryEntry) {
	(*q)[i] = e
	e.record.index = int32(i)
}
