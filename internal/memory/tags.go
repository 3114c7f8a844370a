package memory

// The index of tags: which records of a shard have each of them.

import (
	"context"
	"slices"

	"example.com/idempotency/store"
)

// A tagIndex has the slots of the records of a shard that have a tag, in order. Most tags are of one record, and a
// few of many. Of the latter a page is read from any slot on without looking at those before it.
type tagIndex map[store.Tag][]int32

// enter adds a slot that is not there.
func (x tagIndex) enter(t store.Tag, slot int32) {
	i, _ := slices.BinarySearch(x[t], slot)
	x[t] = slices.Insert(x[t], i, slot)
}

// leave takes a slot out.
func (x tagIndex) leave(t store.Tag, slot int32) {
	slots := x[t]
	i, _ := slices.BinarySearch(slots, slot)
	switch slots = slices.Delete(slots, i, i+1); {
	case len(slots) == 0:
		delete(x, t)
	case len(slots) < cap(slots)/4:
		x[t] = slices.Clone(slots)
	default:
		x[t] = slots
	}
}

// keepTags gives the record the tags of a claim that was granted, if it has any.
func (sh *shard) keepTags(r entry, c *store.Claim) {
	if len(c.Tags) == 0 {
		return
	}
	sh.dropTags(r)
	if sh.tags == nil {
		sh.tags = make(tagIndex)
	}
	rare := sh.records.addRare(r)
	for _, t := range c.Tags[:min(len(c.Tags), store.MaxTags)] {
		if !slices.Contains(rare.tags, t) {
			rare.tags = append(rare.tags, t)
			sh.tags.enter(t, r.slot)
		}
	}
}

// tagCount returns how many tags the record of a claim gets.
func tagCount(c *store.Claim) (n int) {
	for i, t := range c.Tags[:min(len(c.Tags), store.MaxTags)] {
		if !slices.Contains(c.Tags[:i], t) {
			n++
		}
	}
	return n
}

// dropTags takes all tags from the record.
func (sh *shard) dropTags(r entry) {
	rare := sh.records.rareOf(r)
	if rare == nil {
		return
	}
	for _, t := range rare.tags {
		sh.tags.leave(t, r.slot)
	}
	rare.tags = nil
}

// KeepsTags implements [store.Finder].
func (s *Store) KeepsTags() error { return nil }

// Find implements [store.Finder].
func (s *Store) Find(ctx context.Context, t store.Tag, q store.Query) (p store.Page, err error) {
	if err := ctx.Err(); err != nil {
		return p, err
	}
	within := string(t[:])
	c, err := s.parseCursor(&q, within)
	if err != nil {
		return p, err
	}
	for looks := 0; c.shard < shardCount && len(p.Entries) < q.PageSize() && looks < slotsPerCall; looks++ {
		next, more := s.findSlots(&p, &q, &s.shards[c.shard], t, c.at, &looks)
		if c.at = next; !more {
			c.shard, c.at = c.shard+1, 0
		}
	}
	if c.shard < shardCount {
		p.Next = s.text(c, &q, within)
	}
	return p, nil
}

// findSlots adds what some of the records of a shard that have the tag are. It returns the slot to go on with, and
// whether there is one.
func (s *Store) findSlots(p *store.Page, q *store.Query, sh *shard, t store.Tag, from int64, looks *int) (next int64, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now, slots := s.now(), sh.tags[t]
	i, _ := slices.BinarySearch(slots, int32(from))
	for end := min(i+slotsPerLock, len(slots)); i < end && len(p.Entries) < q.PageSize(); i++ {
		addSlot(p, q, sh, slots[i], now)
		*looks++
	}
	if i == len(slots) {
		return 0, false
	}
	return int64(slots[i]), true
}
