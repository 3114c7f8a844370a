package memory

// How a store lists its records: shard by shard, or oldest first by the indexes of all shards
// together.

import (
	"cmp"
	"context"
	"slices"

	"example.com/idempotency/internal/oldest"
	"example.com/idempotency/store"
)

const (
	// slotsPerLock is at how many slots List looks while it holds a lock. Each is a wait for
	// the memory, of a listed record up to three, and 20 to 50 µs for all is what a claim may wait.
	slotsPerLock = 64
	// slotsPerCall is at how many slots a call looks.
	slotsPerCall = 4096
	// entriesPerShard is how many entries of each index a call looks at. That is about 2,000 of
	// all, and at least that many of the oldest are among them.
	entriesPerShard = 32
)

// List implements [store.Lister]. It looks at a few thousand records at most in one call, and holds the
// lock of a part of the store for a few hundred of them at a time. Steps are
// left out. A cursor is good until the process ends.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	c, err := s.parseCursor(&q, "")
	switch {
	case err != nil:
		return store.Page{}, err
	case q.Holding:
		return s.listHolding(&q, c), nil
	default:
		return s.listAll(&q, c), nil
	}
}

func (s *Store) listAll(q *store.Query, c position) (p store.Page) {
	for looks := 0; c.shard < shardCount && len(p.Entries) < q.PageSize() && looks < slotsPerCall; looks++ {
		next, more := s.listSlots(&p, q, &s.shards[c.shard], c.at)
		looks += int(max(0, next-c.at))
		if c.at = next; !more {
			c.shard, c.at = c.shard+1, 0
		}
	}
	if c.shard < shardCount {
		p.Next = s.text(c, q, "")
	}
	return p
}

// listSlots adds what some of the slots of a shard have. It returns the slot to go on with, and
// whether there is one.
func (s *Store) listSlots(p *store.Page, q *store.Query, sh *shard, slot int64) (next int64, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now, size := s.now(), int64(sh.records.slots.Len())
	for end := min(slot+slotsPerLock, size); slot < end && len(p.Entries) < q.PageSize(); slot++ {
		addSlot(p, q, sh, int32(slot), now)
	}
	return slot, slot < size
}

// addSlot adds the record in a slot to the page if there is one and the query asks for it. It looks for the
// value of no other record.
func addSlot(p *store.Page, q *store.Query, sh *shard, slot int32, now int64) {
	r := sh.records.at(slot)
	if r.isFree() || r.expires <= now || !q.Matches(sh.outline(r, now)) {
		return
	}
	r = sh.records.entry(slot)
	var out store.Record
	sh.see(&out, r, now)
	out.Answer, out.SealedKey = nil, sh.sealedKey(r)
	p.Entries = append(p.Entries, store.Entry{Key: sh.records.key(r), Record: out})
}

// A heldPlace is an entry in the index of a shard.
type heldPlace struct {
	shard int
	oldest.Entry
}

// compareByAge puts the entries of all shards in one order.
func compareByAge(a, b heldPlace) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.shard, b.shard))
}

// listHolding merges the first entries of all indexes after the cursor.
func (s *Store) listHolding(q *store.Query, c position) (p store.Page) {
	found, more := s.oldestAfter(c)
	for ; len(found) > 0 && len(p.Entries) < q.PageSize(); found = found[1:] {
		s.listHeld(&p, q, found[0])
		c.shard, c.at = found[0].shard, found[0].At
	}
	if len(found) > 0 || more {
		p.Next = s.text(c, q, "")
	}
	return p
}

// listHeld adds the record of an entry that is still in the index.
func (s *Store) listHeld(p *store.Page, q *store.Query, held heldPlace) {
	sh := &s.shards[held.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.holding.Has(held.Entry) {
		addSlot(p, q, sh, held.Slot, s.now())
	}
}

// oldestAfter returns the first entries of all indexes after the cursor, in one order, and reports
// whether there are more. The last one may be the place of an entry that has left.
func (s *Store) oldestAfter(c position) (found []heldPlace, more bool) {
	var share [entriesPerShard]oldest.Entry
	var end heldPlace // up to which all indexes were read
	for i := range s.shards {
		from := c.at
		if i > c.shard {
			from-- // an entry of the same moment comes after the cursor
		}
		entries, seen, rest := s.shards[i].oldestAfter(from, share[:0])
		for _, e := range entries {
			found = append(found, heldPlace{i, e})
		}
		if last := (heldPlace{i, oldest.Entry{At: seen}}); rest && (!more || compareByAge(last, end) < 0) {
			end, more = last, true
		}
	}
	slices.SortFunc(found, compareByAge)
	if more {
		n, there := slices.BinarySearchFunc(found, end, compareByAge)
		if found = found[:n]; there {
			found = found[:n+1]
		} else {
			found = append(found, end)
		}
	}
	return found, more
}

// oldestAfter appends the first entries of the index after a moment to a list. It returns the moment up
// to which it has looked, and whether there is more to see.
func (sh *shard) oldestAfter(at int64, to []oldest.Entry) (entries []oldest.Entry, seen int64, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.holding == nil {
		return to, at, false
	}
	return sh.holding.After(at, entriesPerShard, to)
}
