package memory

// How a store lists its records: shard by shard, or oldest first by the indexes of all shards
// together.

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

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
	c, err := s.parseCursor(&q)
	switch {
	case err != nil:
		return store.Page{}, err
	case q.Holding:
		return s.listHolding(&q, c), nil
	default:
		return s.listAll(&q, c), nil
	}
}

func (s *Store) listAll(q *store.Query, c cursor) (p store.Page) {
	limit := q.PageSize()
	for looks := 0; c.shard < shardCount && len(p.Entries) < limit && looks < slotsPerCall; looks++ {
		sh := &s.shards[c.shard]
		sh.mu.Lock()
		now := s.now()
		slot, end := c.place, min(c.place+slotsPerLock, int64(sh.records.slots.Len()))
		for ; slot < end && len(p.Entries) < limit; slot++ {
			addSlot(&p, q, sh, int32(slot), now)
		}
		more := slot < int64(sh.records.slots.Len())
		sh.mu.Unlock()
		looks += int(max(0, slot-c.place))
		c.place = slot
		if !more {
			c.shard, c.place = c.shard+1, 0
		}
	}
	if c.shard < shardCount {
		p.Next = c.text(s)
	}
	return p
}

// addSlot adds the record in a slot to the page if there is one and the query asks for it. It looks for the
// value of no other record.
func addSlot(p *store.Page, q *store.Query, sh *shard, slot int32, now int64) {
	r := sh.records.at(slot)
	if r.isFree() || r.expires <= now || !q.Matches(sh.outline(r, now)) {
		return
	}
	r = sh.records.entry(slot)
	out := sh.see(r, now)
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
func (s *Store) listHolding(q *store.Query, c cursor) (p store.Page) {
	found, more := s.oldestAfter(c)
	for limit := q.PageSize(); len(found) > 0 && len(p.Entries) < limit; found = found[1:] {
		held := found[0]
		c.shard, c.place = held.shard, held.At
		sh := &s.shards[held.shard]
		sh.mu.Lock()
		if sh.holding.Has(held.Entry) {
			addSlot(&p, q, sh, held.Slot, s.now())
		}
		sh.mu.Unlock()
	}
	if len(found) > 0 || more {
		p.Next = c.text(s)
	}
	return p
}

// oldestAfter returns the first entries of all indexes after the cursor, in one order, and reports
// whether there are more. The last one may be the place of an entry that has left.
func (s *Store) oldestAfter(c cursor) (found []heldPlace, more bool) {
	var share [entriesPerShard]oldest.Entry
	var end heldPlace // up to which all indexes were read
	for i := range s.shards {
		from := c.place
		if i > c.shard {
			from-- // an entry of the same moment comes after the cursor
		}
		sh := &s.shards[i]
		sh.mu.Lock()
		if sh.holding == nil {
			sh.mu.Unlock()
			continue
		}
		entries, seen, rest := sh.holding.After(from, entriesPerShard, share[:0])
		sh.mu.Unlock()
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

// A cursor is a place between two records. Of all records, it is a shard and a slot. Of the
// indexes it is a moment: no two entries of a shard have the same, and entries of the same moment
// are in the order of their shards.
type cursor struct {
	holding bool
	shard   int
	place   int64 // the next slot, or the last moment
}

// text returns the cursor as text. It begins with a mark of the store, because in another store
// the numbers would lead anywhere.
func (c cursor) text(s *Store) string {
	kind := "all"
	if c.holding {
		kind = "holding"
	}
	return fmt.Sprintf("%s.%s.%d.%d", s.cursorMark(), kind, c.shard, c.place)
}

func (s *Store) cursorMark() string {
	return strconv.FormatUint(maphash.String(s.seed, "cursor")>>32, 36)
}

func (s *Store) parseCursor(q *store.Query) (cursor, error) {
	c := cursor{holding: q.Holding}
	if q.Cursor == "" {
		return c, nil
	}
	parts := strings.Split(q.Cursor, ".")
	if len(parts) == 4 {
		shard, err := strconv.ParseUint(parts[2], 10, 16)
		place, errPlace := strconv.ParseInt(parts[3], 10, 64)
		c.shard, c.place = int(shard), place
		if err == nil && errPlace == nil && c.shard < shardCount && c.text(s) == q.Cursor {
			return c, nil
		}
	}
	return c, store.ErrBadCursor
}
