package redisstore

// How a store lists what its index has.

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// listHolding returns a page of what the index has, and takes settled claims out of the index.
func (s *Store) listHolding(ctx context.Context, q *store.Query) (p store.Page, err error) {
	mark := s.cursorMark(q, nil)
	c, err := parseCursor(q.Cursor, mark, 1)
	if err != nil || len(c.left) > 0 { // the index leaves none
		return store.Page{}, store.ErrBadCursor
	}
	limit := q.PageSize()
	var settled []redisproto.Place
	for more, rounds := true, 0; more && rounds < listRounds && len(p.Entries) < limit; rounds++ {
		room := limit - len(p.Entries)
		cmd, _, err := runScript(ctx, s.server, redis.NewStringSliceCmd, redisproto.Oldest(s.index.name, c.scan, room), false)
		if err != nil {
			return store.Page{}, err
		}
		places, last, err := redisproto.ParseOldest(cmd.Val())
		if cmd.Val() == nil {
			err = errNoResult
		}
		if err != nil {
			return store.Page{}, wrap(err)
		}
		found, err := s.survey(ctx, places)
		if err != nil {
			return store.Page{}, s.server.failure(ctx, err)
		}
		for i, place := range places {
			r := found[i]
			switch {
			case r == nil: // nobody can read it, and so nobody knows that it is settled
				if q.Matches(store.Unreadable) {
					p.Entries = append(p.Entries, store.Entry{Key: place.Member.Key(), Record: store.Unreadable})
				}
			case !r.Holding || r.Owner != place.Member.Owner():
				settled = append(settled, place)
			case q.Matches(r.Record):
				p.Entries = append(p.Entries, store.Entry{Key: place.Member.Key(), Record: r.Record})
			}
		}
		c.scan = max(c.scan, last)
		if more = len(cmd.Val()) == 2*room; more {
			p.Next = c.text(mark)
		} else {
			p.Next = ""
		}
	}
	if len(settled) > 0 {
		_, _, err = runScript(ctx, s.server, redis.NewIntCmd, redisproto.Drop(s.index.name, settled), false)
	}
	return p, err
}

// survey reads the records of the claims. It returns nil for a record that cannot be read, and an
// empty one if there is none.
func (s *Store) survey(ctx context.Context, places []redisproto.Place) ([]*redisproto.Record, error) {
	cmds, err := s.surveyBy(ctx, places, redisproto.Call.ByDigest)
	if slices.ContainsFunc(cmds, func(c *redis.SliceCmd) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }) {
		cmds, err = s.surveyBy(ctx, places, redisproto.Call.BySource)
	}
	if err != nil && !isReply(err) {
		return nil, err
	}
	records := make([]*redisproto.Record, len(places))
	for i, cmd := range cmds {
		r, err := redisproto.ParseSurvey(cmd.Val())
		switch {
		case notHash(cmd.Err()):
		case cmd.Err() != nil:
			return nil, cmd.Err()
		case cmd.Val() == nil:
			return nil, errNoResult
		case err == nil, errors.Is(err, store.ErrNotFound):
			records[i] = &r
		}
	}
	return records, nil
}

// surveyBy sends the commands that line makes of the calls.
func (s *Store) surveyBy(
	ctx context.Context, places []redisproto.Place, line func(redisproto.Call) []any,
) ([]*redis.SliceCmd, error) {
	cmds := make([]*redis.SliceCmd, len(places))
	pipe := s.server.client.Pipeline()
	for i, place := range places {
		cmds[i] = redis.NewSliceCmd(ctx, line(redisproto.Survey(s.prefix+place.Member.Key()))...)
		_ = pipe.Process(ctx, cmds[i])
	}
	_, err := pipe.Exec(ctx)
	return cmds, err
}
