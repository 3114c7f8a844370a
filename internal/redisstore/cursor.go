package redisstore

// A place in a list, as text that a caller gives back.

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/cursor"
	"example.com/idempotency/internal/redisclient"
	"example.com/idempotency/store"
)

const (
	// listRounds is how many rounds of reading a call of List makes.
	listRounds = 4
	// maxLeft is how many keys a cursor may have. A server returns a little more for a SCAN than it
	// was asked for, which is at most 1,000.
	maxLeft = 10_000
)

// A position is a place between two records.
type position struct {
	master int      // where to scan next, by address
	scan   uint64   // where on it; in the index, the last moment
	left   []string // keys of the last scan that did not fit into the page
}

// text returns the cursor of a query at a position. It begins with a sum over the rest and over the mark,
// which is of the query and the servers, so that a text which was cut or put together leads nowhere. No
// key has a space.
func (c position) text(mark string) string {
	place := strings.Join(append([]string{fmt.Sprintf("%d.%d", c.master, c.scan)}, c.left...), " ")
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, mark, " ", place)
	return strconv.FormatUint(h.Sum64(), 36) + "." + place
}

// parseCursor reads a cursor that must have the mark, and lead to one of so many masters.
func parseCursor(text, mark string, masters int) (c position, err error) {
	if text == "" {
		return c, nil
	}
	place, left, some := strings.Cut(text, " ")
	if some && strings.Count(left, " ") < maxLeft {
		c.left = strings.Split(left, " ")
	}
	_, numbers, _ := strings.Cut(place, ".")
	master, scan, _ := strings.Cut(numbers, ".")
	c.master, _ = strconv.Atoi(master)
	c.scan, _ = strconv.ParseUint(scan, 10, 64)
	last := c.master == masters && c.scan == 0 && some // all masters have been scanned
	if c.master < 0 || c.master >= masters && !last || slices.ContainsFunc(c.left, notKey) || c.text(mark) != text {
		return position{}, store.ErrBadCursor
	}
	return c, nil
}

// cursorMark returns a word that is another one if the query or the masters are other ones.
func (s *Store) cursorMark(q *store.Query, masters []redisclient.Client) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, cursor.Query(q), " ", s.prefix)
	if _, ok := s.server.client.(*redis.ClusterClient); ok {
		for _, m := range masters {
			_, _ = fmt.Fprint(h, " ", addrOf(m))
		}
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// notKey reports whether no record has that key.
func notKey(key string) bool {
	return key == "" || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })
}
