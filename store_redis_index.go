package idempotency

// The index of a Redis store: which records are held, or claimed by a claim that says Hold. It is
// one sorted set beside the records. A claim enters it when it has been granted, with one more
// round trip, because a script touches one key only. A claim that is settled leaves it when
// another one enters, or when somebody reads the index.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

const (
	// redisSettled is how many settled claims wait for another claim to take them out of the
	// index. Readers take out what is above that.
	redisSettled = 1000
	// redisLeaving is how many of them leave with one claim.
	redisLeaving = 100
)

// settledClaims are claims of this process that have to leave the index.
type settledClaims struct {
	mu     sync.Mutex
	claims map[redisproto.Member]struct{}
}

// add notes that a claim has been settled.
func (s *settledClaims) add(m redisproto.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = make(map[redisproto.Member]struct{})
	}
	if len(s.claims) < redisSettled {
		s.claims[m] = struct{}{}
	}
}

// take returns some of the claims for the call that enters m, and forgets them.
func (s *settledClaims) take(m redisproto.Member) (some []redisproto.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, m) // settled once, and claimed again by the same owner
	for m := range s.claims {
		if len(some) == redisLeaving {
			break
		}
		some = append(some, m)
		delete(s.claims, m)
	}
	return some
}

// enterFor enters a claim in the index: the caller's own if it was granted and says Hold, or one
// that has not said Hold and that the caller, who does, has found lapsed.
func (s *RedisStore) enterFor(ctx context.Context, key string, c store.Claim, r redisproto.Record) error {
	switch {
	case c.Hold && r.Mine:
		return s.enter(ctx, key, c.Owner, true)
	case c.Hold && r.Found:
		// If it fails, the next claim that finds the record tries again. The caller may not run
		// either way.
		_ = s.enter(ctx, key, r.Owner, false)
	}
	return nil
}

// leave notes that a claim has been settled, if the result of the script says that it was entered.
func (s *RedisStore) leave(key string, o store.Owner, result int64) {
	if result == redisproto.Entered {
		s.settled.add(redisproto.NewMember(o, key))
	}
}

// enter adds a claim to the index. If anew is set, it goes to the end if it is there already. An
// error never says that the claim was refused, because it was granted.
func (s *RedisStore) enter(ctx context.Context, key string, o store.Owner, anew bool) error {
	m := redisproto.NewMember(o, key)
	call := redisproto.Enter(s.indexName(), m, anew, s.settled.take(m))
	err := s.update(ctx, call, false, errNoResult)
	if err != nil && refusedClaim(err) {
		return fmt.Errorf("idempotency: redis: the claim was not entered in the index: %v", err) //nolint:errorlint // see above
	}
	return err
}

func (s *RedisStore) indexName() string { return s.prefix + redisproto.IndexKey }

// listHolding returns a page of what the index has, and takes settled claims out of the index.
func (s *RedisStore) listHolding(ctx context.Context, q *store.Query) (p store.Page, err error) {
	c, err := parseRedisCursor(q.Cursor, s.cursorMark(true, nil))
	if err != nil || c.master > 0 || len(c.left) > 0 {
		return store.Page{}, store.ErrBadCursor
	}
	limit := q.PageSize()
	var settled []redisproto.Place
	for more, rounds := true, 0; more && rounds < redisListRounds && len(p.Entries) < limit; rounds++ {
		room := limit - len(p.Entries)
		cmd, _, err := runScript(ctx, s, redis.NewStringSliceCmd, redisproto.Oldest(s.indexName(), c.scan, room), false)
		if err != nil {
			return store.Page{}, err
		}
		places, err := redisproto.ParseOldest(cmd.Val())
		if cmd.Val() == nil {
			err = errNoResult
		}
		if err != nil {
			return store.Page{}, redisError(err)
		}
		found, err := s.survey(ctx, places)
		if err != nil {
			return store.Page{}, s.failure(ctx, err)
		}
		for i, place := range places {
			r := found[i]
			switch {
			case r == nil: // nobody can read it
			case !r.Holding || r.Owner != place.Member.Owner():
				settled = append(settled, place)
			case q.Matches(redisRecord(*r)):
				p.Entries = append(p.Entries, store.Entry{Key: place.Member.Key(), Record: redisRecord(*r)})
			}
			c.scan = place.Time
		}
		if more = len(places) == room; more {
			p.Next = c.text()
		} else {
			p.Next = ""
		}
	}
	if len(settled) > 0 {
		_, _, err = runScript(ctx, s, redis.NewIntCmd, redisproto.Drop(s.indexName(), settled), false)
	}
	return p, err
}

// survey reads the records of the claims. It returns nil for a record that cannot be read, and an
// empty one if there is none.
func (s *RedisStore) survey(ctx context.Context, places []redisproto.Place) ([]*redisproto.Record, error) {
	cmds, err := s.surveyBy(ctx, places, redisproto.Call.ByDigest)
	if slices.ContainsFunc(cmds, func(c *redis.SliceCmd) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }) {
		cmds, err = s.surveyBy(ctx, places, redisproto.Call.BySource)
	}
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		return nil, err
	}
	records := make([]*redisproto.Record, len(places))
	for i, cmd := range cmds {
		r, err := redisproto.ParseSurvey(cmd.Val())
		switch {
		case redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE"): // not a hash
		case cmd.Err() != nil:
			return nil, cmd.Err()
		case cmd.Val() == nil:
			return nil, errNoResult
		case err == nil, errors.Is(err, redisproto.ErrAbsent):
			records[i] = &r
		}
	}
	return records, nil
}

// surveyBy sends the commands that line makes of the calls.
func (s *RedisStore) surveyBy(
	ctx context.Context, places []redisproto.Place, line func(redisproto.Call) []any,
) ([]*redis.SliceCmd, error) {
	cmds := make([]*redis.SliceCmd, len(places))
	pipe := s.client.Pipeline()
	for i, place := range places {
		cmds[i] = redis.NewSliceCmd(ctx, line(redisproto.Survey(s.prefix+place.Member.Key()))...)
		_ = pipe.Process(ctx, cmds[i])
	}
	_, err := pipe.Exec(ctx)
	return cmds, err
}
