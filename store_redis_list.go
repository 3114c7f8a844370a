package idempotency

// How a Redis store lists all its records: by SCAN, one master after another.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

const (
	// redisListRounds is how many rounds of reading a call makes.
	redisListRounds = 4
	// redisListSparse is how many names one SCAN looks at where records are rare.
	redisListSparse = 1000
)

// A redisCursor is a place between two records.
type redisCursor struct {
	mark   string // of the servers and the query
	master int    // where to scan next, by address
	scan   uint64
	left   []string // keys of the last scan that did not fit into the page
}

// text returns the cursor as text. No key has a space.
func (c redisCursor) text() string {
	return strings.Join(append([]string{fmt.Sprintf("%s.%d.%d", c.mark, c.master, c.scan)}, c.left...), " ")
}

// parseRedisCursor reads the cursor of a query, which must have the mark.
func parseRedisCursor(cursor, mark string) (c redisCursor, err error) {
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
func (s *RedisStore) cursorMark(holding bool, masters []redis.UniversalClient) string {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, holding, " ", s.prefix)
	if _, ok := s.client.(*redis.ClusterClient); ok {
		for _, m := range masters {
			_, _ = fmt.Fprint(h, " ", redisAddr(m))
		}
	}
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// List implements [store.Lister]. It leaves out answers and steps.
//
// A call makes a few round trips, and a cursor is good for as long as the masters of a Cluster
// stay the same. A walk during which the only server was restarted or replaced, or slots of a
// Cluster have moved, may miss records.
func (s *RedisStore) List(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Holding {
		return s.listHolding(ctx, &q)
	}
	masters, err := s.masters(ctx)
	if err != nil {
		return store.Page{}, s.failure(ctx, err)
	}
	c, err := parseRedisCursor(q.Cursor, s.cursorMark(false, masters))
	if err != nil || c.master > len(masters) {
		return store.Page{}, store.ErrBadCursor
	}
	var p store.Page
	limit := q.PageSize()
	count := limit
	for range redisListRounds {
		if len(p.Entries) == limit {
			break
		}
		if len(c.left) == 0 {
			if c.master == len(masters) {
				break
			}
			scan := redis.NewScanCmd(ctx, masters[c.master].Process,
				"scan", c.scan, "match", redisLiteral(s.prefix)+"*", "count", count)
			_ = masters[c.master].Process(ctx, scan)
			names, next, err := scan.Result()
			if err == nil && names == nil {
				err = errNoResult
			}
			switch room := limit - len(p.Entries); {
			case err != nil:
				return store.Page{}, s.failure(ctx, err)
			case len(names) > 2*room && count > room:
				count = room // again: what does not fit into the page makes a long cursor
				continue
			case len(names) == 0:
				count = redisListSparse
			}
			if c.scan = next; next == 0 {
				c.master++
			}
			c.left = s.keys(names)
		}
		if err := s.addRecords(ctx, &q, &p, &c.left); err != nil {
			return store.Page{}, err
		}
	}
	if c.master < len(masters) || len(c.left) > 0 {
		p.Next = c.text()
	}
	return p, nil
}

// redisLiteral quotes a string for use in a pattern.
func redisLiteral(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// keys returns the keys of the names that records may have.
func (s *RedisStore) keys(names []string) []string {
	keys := names[:0]
	for _, name := range names {
		key := strings.TrimPrefix(name, s.prefix)
		if !notKey(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// notKey reports whether no record has that key.
func notKey(key string) bool {
	return key == "" || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' })
}

// addRecords adds the records of the keys to the page, as far as the query asks for them. It takes
// the keys away that it has looked at, which is all unless the page is full. It reads a record with
// two commands, and the record may change between them. In a survey that does not matter.
func (s *RedisStore) addRecords(ctx context.Context, q *store.Query, p *store.Page, keys *[]string) error {
	values, ttls := make([]*redis.SliceCmd, len(*keys)), make([]*redis.DurationCmd, len(*keys))
	pipe := s.client.Pipeline() // unlike the pipeline of a master, it follows a slot that is moving
	for i, key := range *keys {
		// Not HGET, for which a hash without a header is an error of the client library.
		values[i] = pipe.HMGet(ctx, s.prefix+key, redisproto.SummaryFields()...)
		ttls[i] = pipe.PTTL(ctx, s.prefix+key)
	}
	_, err := pipe.Exec(ctx)
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		return s.failure(ctx, err)
	}
	for i, limit := 0, q.PageSize(); len(*keys) > 0 && len(p.Entries) < limit; i++ {
		err := cmp.Or(values[i].Err(), ttls[i].Err())
		if err == nil && values[i].Val() == nil {
			err = errNoResult
		}
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // a key that is not a hash fails only its own command
			return s.failure(ctx, err)
		}
		r, err := redisproto.ParseSummary(ttls[i].Val(), values[i].Val())
		if found := redisRecord(r); err == nil && q.Matches(found) {
			p.Entries = append(p.Entries, store.Entry{Key: (*keys)[0], Record: found})
		}
		*keys = (*keys)[1:]
	}
	return nil
}
