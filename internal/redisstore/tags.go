package redisstore

// The indexes of tags: which records can be found by each. An index is one sorted set beside the records, like that of
// held records, and in a Cluster in any slot. A claim enters it when it has been granted: with the same round trip, or
// with one more in a Cluster. What changes the end of a record enters it anew, unless the entry lasts for long enough.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/store"
)

// The tagIndexes are those of one store.
type tagIndexes struct {
	server *server
	prefix string
}

func (x *tagIndexes) name(t store.Tag) string { return x.prefix + redisproto.TagIndex(t) }

// calls returns the calls that enter a record in the indexes of its tags.
func (x *tagIndexes) calls(key string, kept time.Duration, tags []store.Tag, exactly bool) []redisproto.Call {
	calls := make([]redisproto.Call, len(tags))
	for i, t := range tags {
		calls[i] = redisproto.EnterTag(x.name(t), key, kept, exactly)
	}
	return calls
}

// entriesOf returns the commands that go with a claim. If it is not granted, they leave entries that are no record's, or
// that last for longer than before. In a Cluster there are none: another server may have the index.
func (x *tagIndexes) entriesOf(ctx context.Context, key string, kept time.Duration, tags []store.Tag) (entries []redis.Cmder) {
	if _, ok := x.server.client.(*redis.ClusterClient); ok {
		return nil
	}
	for _, call := range x.calls(key, kept, tags, false) {
		entries = append(entries, redis.NewIntCmd(ctx, call.ByDigest()...))
	}
	return entries
}

// entered makes sure that a claim that was granted is in the indexes of its tags. An error never says that the claim was
// refused.
func (x *tagIndexes) entered(ctx context.Context, key string, kept time.Duration, tags []store.Tag, entries []redis.Cmder) error {
	if len(entries) == len(tags) && !slices.ContainsFunc(entries, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	err := x.enter(ctx, x.calls(key, kept, tags, false))
	if err != nil && refusedClaim(err) {
		return fmt.Errorf("idempotency: redis: the claim was not entered in the index of a tag: %v", err) //nolint:errorlint // see above
	}
	return err
}

// enter makes calls together.
func (x *tagIndexes) enter(ctx context.Context, calls []redisproto.Call) error {
	err := x.enterBy(ctx, calls, redisproto.Call.ByDigest)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		err = x.enterBy(ctx, calls, redisproto.Call.BySource)
	}
	if err != nil {
		err = x.server.failure(ctx, err)
	}
	return err
}

// enterBy sends the commands that line makes of the calls.
func (x *tagIndexes) enterBy(ctx context.Context, calls []redisproto.Call, line func(redisproto.Call) []any) error {
	pipe := x.server.client.Pipeline()
	for _, call := range calls {
		_ = pipe.Process(ctx, redis.NewIntCmd(ctx, line(call)...))
	}
	_, err := pipe.Exec(ctx)
	return err
}

// follow lets the entries of a record end when the record does. The call is done: if that fails, the entries may end
// before.
func (x *tagIndexes) follow(ctx context.Context, key string, r redisproto.Result) {
	if len(r.Tags) > 0 {
		_ = x.enter(ctx, x.calls(key, r.Kept, r.Tags, true))
	}
}

// prolong is follow for a claim that has found a record held.
func (x *tagIndexes) prolong(ctx context.Context, key string) {
	cmd, _, err := runScript(ctx, x.server, redis.NewSliceCmd, redisproto.ReadTags(x.prefix+key), false)
	if err == nil {
		x.follow(ctx, key, redisproto.ParseTags(cmd.Val()))
	}
}

// KeepsTags implements [store.Finder].
func (s *Store) KeepsTags() error { return nil }

// tagMark is cursorMark for a search by a tag.
func (s *Store) tagMark(q *store.Query, t store.Tag) string {
	return strings.ReplaceAll(s.cursorMark(q, nil)+redisproto.TagIndex(t), " ", ".")
}

// Find implements [store.Finder]. It leaves out answers and steps, and takes entries out of the index that are no record's.
//
// A walk during which the server was restarted or replaced may miss records.
func (s *Store) Find(ctx context.Context, t store.Tag, q store.Query) (store.Page, error) {
	index := s.tags.name(t)
	var found map[string]redisproto.Tagged // by their keys, as the last scans have found them
	var dead []redisproto.Tagged
	shows := func(key string, r *redisproto.Record, err error) bool {
		has := err == nil && slices.Contains(r.Tags, t)
		if e, ok := found[key]; ok && !has && !errors.Is(err, store.ErrUnreadableHere) {
			dead = append(dead, e)
		}
		return has
	}
	page, err := s.walk(ctx, &q, s.tagMark(&q, t), 1, surveyed{redisproto.FoundFields(), shows},
		func(c position, count int) ([]string, uint64, error) {
			cmd, _, err := runScript(ctx, s.server, redis.NewSliceCmd, redisproto.ScanTag(index, c.scan, count), false)
			if err != nil {
				return nil, 0, err
			}
			entries, next, err := redisproto.ParseScan(cmd.Val())
			keys := make([]string, 0, len(entries))
			found = make(map[string]redisproto.Tagged, len(entries))
			for _, e := range entries {
				if _, twice := found[e.Key]; !twice && !notKey(e.Key) {
					keys = append(keys, e.Key)
					found[e.Key] = e
				}
			}
			return keys, next, wrap(err)
		})
	if err == nil && len(dead) > 0 {
		_, _, err = runScript(ctx, s.server, redis.NewIntCmd, redisproto.DropTagged(index, dead), false)
	}
	return page, err
}
