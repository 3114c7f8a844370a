package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/redisproto"
)

// This file is about what stands before the names of records in Redis.

// namesInRedis returns names of keys below the prefix, without it: some of each master.
func (s *source) namesInRedis(ctx context.Context, prefix string) (names []string, err error) {
	var mu sync.Mutex
	one := func(ctx context.Context, c *redis.Client) error {
		quoted := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(prefix)
		var cursor uint64
		for n := 0; n == 0 || cursor != 0 && n < 10; n++ {
			found, next, err := c.Scan(ctx, cursor, quoted+"*", 1000).Result()
			if err != nil {
				return err
			}
			mu.Lock()
			for _, name := range found {
				names = append(names, strings.TrimPrefix(name, prefix))
			}
			mu.Unlock()
			cursor = next
		}
		return nil
	}
	switch client := s.redis.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, one)
	case *redis.Client:
		err = one(ctx, client)
	}
	return names, err
}

// shorterPrefixes returns beginnings of the prefix under which there are records: as the index or the mark of birth of a store
// tells, or some of all keys.
func (s *source) shorterPrefixes(ctx context.Context) (found []string, err error) {
	own := s.target.prefix
	if own == "" {
		return nil, nil
	}
	all, err := s.namesInRedis(ctx, "")
	if err != nil {
		return nil, err
	}
	some := prefixesOf(all)
	for n := range len(own) {
		there := slices.Contains(some, own[:n])
		for _, key := range []string{redisproto.IndexKey, inspect.BirthMark} {
			if is, err := s.redis.Exists(ctx, own[:n]+key).Result(); err != nil && isAway(err) {
				return nil, err
			} else if is > 0 {
				there = true
			}
		}
		if there {
			found = append(found, own[:n])
		}
	}
	return found, nil
}

// prefixesOf returns what stands before the records among some names. Records of the library itself are left out.
func prefixesOf(names []string) (found []string) {
	const record = 43
	for _, name := range names {
		n := max(0, len(name)-record)
		if _, other := inspect.Named(name[n:]); other == nil && !slices.Contains(found, name[:n]) {
			found = append(found, name[:n])
		}
	}
	slices.Sort(found)
	return found
}

// mostPrefixes is how many are told.
const mostPrefixes = 8

// adviseOnPrefix says under which prefixes there are records, if this one has none. It says nothing if the server does not let it
// look: the command has done what it was asked for.
func (s *source) adviseOnPrefix(ctx context.Context, a *app) {
	if s.redis == nil || a.format == asJSON {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	names, _ := s.namesInRedis(ctx, "")
	found := prefixesOf(names)
	if len(found) == 0 || slices.Contains(found, s.target.prefix) {
		return
	}
	more := ""
	if len(found) > mostPrefixes {
		found, more = found[:mostPrefixes], " and others"
	}
	fmt.Fprintf(a.errOut, "idem: no record was found under the prefix %q, but some were under %q%s: say --prefix\n", s.target.prefix, found, more)
}
