package memory

// A place in a list, as text that a caller gives back.

import (
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"

	"example.com/idempotency/internal/cursor"
	"example.com/idempotency/store"
)

// A position is a place between two records. Of all records, it is a shard and a slot. Of the
// indexes it is a moment: no two entries of a shard have the same, and entries of the same moment
// are in the order of their shards.
type position struct {
	shard int
	at    int64 // the next slot, or the last moment
}

// text returns the cursor of a query at a position, within the records that have a tag, or within all. It ends
// with a digest of that which only the store can make: any other place, query or store has another one.
func (s *Store) text(c position, q *store.Query, within string) string {
	place := fmt.Sprintf("%d.%d", c.shard, c.at)
	return place + "." + strconv.FormatUint(maphash.String(s.seed, place+" "+cursor.Query(q)+within), 36)
}

// parseCursor reads the cursor of a query. It takes only what text has made for the same query.
func (s *Store) parseCursor(q *store.Query, within string) (c position, err error) {
	if q.Cursor == "" {
		return c, nil
	}
	shard, rest, _ := strings.Cut(q.Cursor, ".")
	place, _, _ := strings.Cut(rest, ".")
	c.shard, _ = strconv.Atoi(shard)
	c.at, _ = strconv.ParseInt(place, 10, 64)
	if s.text(c, q, within) != q.Cursor {
		return c, store.ErrBadCursor
	}
	return c, nil
}
