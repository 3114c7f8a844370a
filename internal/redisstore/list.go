package redisstore

// How a store lists all its records: by SCAN, one master after another.

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

const (
	// sparseCount is how many names one SCAN looks at where records are rare.
	sparseCount = 1000
	// keysPerRound is how many records a call reads in one pipeline.
	keysPerRound = 1000
)

// List implements [store.Lister]. It leaves out answers and steps.
//
// A call makes a few round trips, and a cursor is good for as long as the masters of a Cluster
// stay the same. A walk during which the only server was restarted or replaced, or slots of a
// Cluster have moved, may miss records.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if q.Holding {
		return s.listHolding(ctx, &q)
	}
	masters, err := s.server.masters(ctx)
	if err != nil {
		return store.Page{}, s.server.failure(ctx, err)
	}
	return s.walk(ctx, &q, s.cursorMark(&q, masters), len(masters), surveyed{fields: redisproto.SummaryFields()},
		func(c position, count int) (keys []string, next uint64, err error) {
			scan := redis.NewScanCmd(ctx, masters[c.master].Process,
				"scan", c.scan, "match", literal(s.prefix)+"*", "count", count)
			_ = masters[c.master].Process(ctx, scan)
			names, next, err := scan.Result()
			if err == nil && names == nil {
				err = errNoResult
			}
			if err != nil {
				err = s.server.failure(ctx, err)
			}
			return s.keys(names), next, err
		})
}

// A surveyed is what a walk reads of each record, and which records it shows besides those that the query asks for.
type surveyed struct {
	fields []string
	shows  func(key string, r *redisproto.Record, err error) bool // nil for all
}

// walk returns a page of the records whose keys scan returns, one master after another.
func (s *Store) walk(
	ctx context.Context, q *store.Query, mark string, masters int, of surveyed,
	scan func(c position, count int) (keys []string, next uint64, err error),
) (store.Page, error) {
	c, err := parseCursor(q.Cursor, mark, masters)
	if err != nil {
		return store.Page{}, err
	}
	var p store.Page
	limit := q.PageSize()
	count := limit
	for range listRounds {
		if len(p.Entries) == limit {
			break
		}
		if len(c.left) == 0 {
			if c.master == masters {
				break
			}
			names, next, err := scan(c, count)
			switch room := limit - len(p.Entries); {
			case err != nil:
				return store.Page{}, err
			case len(names) > 2*room && count > room:
				count = room // again: what does not fit into the page makes a long cursor
				continue
			case len(names) > maxLeft:
				return store.Page{}, wrap(fmt.Errorf("the server has returned %d names for a SCAN of %d", len(names), count))
			case len(names) == 0:
				count = sparseCount
			}
			if c.scan = next; next == 0 {
				c.master++
			}
			c.left = names
		}
		if err := s.addRecords(ctx, q, &p, &c.left, of); err != nil {
			return store.Page{}, err
		}
	}
	if c.master < masters || len(c.left) > 0 {
		p.Next = c.text(mark)
	}
	return p, nil
}

// literal quotes a string for use in a pattern.
func literal(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

// keys returns the keys of the names that records may have.
func (s *Store) keys(names []string) []string {
	keys := names[:0]
	for _, name := range names {
		key := strings.TrimPrefix(name, s.prefix)
		if !notKey(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// addRecords adds the records of the first keys to the page, as far as the query asks for them. It
// takes the keys away that it has looked at, which are all that it has read unless the page is full. It
// reads a record with two commands, and the record may change between them. In a survey that does not
// matter.
func (s *Store) addRecords(ctx context.Context, q *store.Query, p *store.Page, keys *[]string, of surveyed) error {
	first := (*keys)[:min(len(*keys), keysPerRound)]
	values, ttls := make([]*redis.SliceCmd, len(first)), make([]*redis.DurationCmd, len(first))
	pipe := s.server.client.Pipeline() // unlike the pipeline of a master, it follows a slot that is moving
	for i, key := range first {
		// Not HGET, for which a hash without a header is an error of the client library.
		values[i] = pipe.HMGet(ctx, s.prefix+key, of.fields...)
		ttls[i] = pipe.PTTL(ctx, s.prefix+key)
	}
	_, err := pipe.Exec(ctx)
	if err != nil && !isReply(err) {
		return s.server.failure(ctx, err)
	}
	for i, key := range first {
		if len(p.Entries) == q.PageSize() {
			break
		}
		err := cmp.Or(values[i].Err(), ttls[i].Err())
		if err == nil && values[i].Val() == nil {
			err = errNoResult
		}
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") { // a key that is not a hash fails only its own command
			return s.server.failure(ctx, err)
		}
		r, err := redisproto.ParseSummary(ttls[i].Val(), values[i].Val())
		if (of.shows == nil || of.shows(key, &r, err)) && err == nil && q.Matches(r.Record) {
			p.Entries = append(p.Entries, store.Entry{Key: key, Record: r.Record})
		}
		*keys = (*keys)[1:]
	}
	return nil
}
