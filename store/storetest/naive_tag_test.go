package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// The tags of a naiveStore. A cursor of Find is the last key, and a name of the tag and the query.

// tag gives the record the tags of a claim, if it has some.
func (s *naiveStore) tag(r *naiveRecord, c store.Claim) {
	tags := slices.Clone(c.Tags)
	switch {
	case len(tags) == 0 && !s.is("a claim without tags takes them away"):
		return
	case s.is("only the first tag is kept"):
		tags = tags[:1]
	case s.is("the tags of all claims are kept"):
		tags = append(tags, r.tags...)
	}
	r.tags, r.tagged = tags, time.Now()
}

func (s *naiveStore) KeepsTags() error { return nil }

func (s *naiveStore) Find(ctx context.Context, t store.Tag, q store.Query) (p store.Page, err error) {
	s.hang(ctx, "Find")
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.nameOf(q)
	if !s.is("a cursor does not tell its tag") {
		name += keyOf(string(t[:]))
	}
	after := strings.TrimSuffix(q.Cursor, name)
	if q.Cursor != "" && (!s.cursors[q.Cursor] || !strings.HasSuffix(q.Cursor, name)) {
		return p, store.ErrBadCursor
	}
	skip := 0
	if s.is("a cursor of Find is a number of records") {
		skip, _ = strconv.Atoi(after)
		after = ""
	}
	limit := q.PageSize()
	n := 0
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[key]
		if !s.hasTag(r, t) || r.expired(s) && !s.is("Find shows what has expired") || !q.Matches(s.see(r)) && !s.is("Find has no filters") {
			continue
		}
		if n++; n <= skip || key <= after {
			continue
		}
		p.Entries = append(p.Entries, s.entry(key))
		if s.is("Find shows a record for each of its tags") && len(r.tags) > 1 {
			p.Entries = append(p.Entries, s.entry(key))
		}
		if len(p.Entries) >= limit {
			if s.is("Find has one page") {
				return p, nil
			}
			if p.Next = key; s.is("a cursor of Find is a number of records") {
				p.Next = fmt.Sprintf("%043d", n)
			}
			p.Next += name
			s.cursors[p.Next] = true
			return p, nil
		}
	}
	return p, nil
}

func (s *naiveStore) hasTag(r *naiveRecord, t store.Tag) bool {
	return slices.Contains(r.tags, t) &&
		(r.State != store.Released || !s.is("Find does not see what is released")) &&
		(time.Since(r.tagged) < r.retention || !s.is("a tag ends with the retention of its claim"))
}

// forgetTags takes the tags from a record that another payload gets.
func (s *naiveStore) forgetTags(r *naiveRecord, c store.Claim) {
	if r.Fingerprint != c.Fingerprint && !s.is("a tag stays with another payload") {
		r.tags = nil
	}
}
