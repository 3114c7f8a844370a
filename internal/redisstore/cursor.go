package redisstore

// A place in a list, as text that a caller gives back.

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/store"
)

// listRounds is how many rounds of reading a call of List makes.
const listRounds = 4

// A cursor is a place between two records.
type cursor struct {
	mark   string // of the servers and the query
	master int    // where to scan next, by address
	scan   uint64
	left   []string // keys of the last scan that did not fit into the page
}

// text returns the cursor as text. No key has a space.
func (c cursor) text() string {
	return strings.Join(append([]string{fmt.Sprintf("%s.%d.%d", c.mark, c.master, c.scan)}, c.left...), " ")
}

// parseCursor reads the cursor of a query, which must have the mark.
func parseCursor(cursor, mark string) (c cursor, err error) {
	c.mark = mark
	if cursor == "" {
		return c, nil
	}
	place, left, some := strings.Cut(cursor, " ")
	if some {
		c.left = strings.Split(left, " ")
	}
	if numbers := strings.Split(place, "."); len(numbers) == 3 {
		var errScan error
		c.master, err = strconv.Atoi(numbers[1])
		c.scan, errScan = strconv.ParseUint(numbers[2], 10, 64)
		known := err == nil && errScan == nil && c.master >= 0 && c.text() == cursor
		if known && !slices.ContainsFunc(c.left, notKey) {
			return c, nil
		}
	}
	return c, store.ErrBadCursor
}

// cursorMark returns a word that is another one if the query or the masters are other ones.
func (s *Store) cursorMark(holding bool, masters []redis.UniversalClient) string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, holding, " ", s.prefix)
	if _, ok := s.server.client.(*redis.ClusterClient); ok {
		for _, m := range masters {
			_, _ = fmt.Fprint(h, " ", addrOf(m))
		}
	}
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// notKey reports whether no record has that key.
func notKey(key string) bool {
	return key == "" || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })
}
