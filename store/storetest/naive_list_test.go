package storetest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"example.com/idempotency/store"
)

// The listing of a naiveStore. A cursor is the last key, or the last place in the index, and a name of
// the query. The store remembers which it has returned.

// enter keeps the index of held records, and of claims that say Hold, as the state of the record
// says.
func (s *naiveStore) enter(r *naiveRecord) {
	holding := r.State == store.Held && !s.is("only claims that say Hold are entered") ||
		r.State == store.Claimed && (r.hold && !s.is("a claim is entered when it is held") || s.is("all claims are entered"))
	switch {
	case r.byLapse && !r.hold && s.is("what lapses is not entered"), r.Attempt > 1 && s.is("only the first claim is entered"):
		r.entered = 0
	case !holding:
		if !s.is("what is settled stays in the index") {
			r.entered = 0
		}
	case r.entered == 0, r.State == store.Held && s.is("what is held is entered again"):
		s.last++
		r.entered = s.last
	case s.is("a repeated claim is listed twice"):
		r.twice = true
	}
}

func (s *naiveStore) List(ctx context.Context, q store.Query) (p store.Page, err error) {
	s.hang(ctx, "List")
	s.mu.Lock()
	defer s.mu.Unlock()
	after, err := s.cursor(q)
	if err != nil {
		return p, err
	}
	keys := slices.Sorted(maps.Keys(s.records))
	place := func(key string) string { return key }
	if q.Holding {
		place = func(key string) string { return fmt.Sprintf("%043d", s.records[key].entered) }
		keys = slices.DeleteFunc(keys, func(key string) bool { return s.records[key].entered == 0 })
		if !s.is("the index is in no order") {
			slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
		}
	}
	skip := 0
	if s.is("a cursor is a number of records") {
		skip, _ = strconv.Atoi(after)
		after = ""
	}
	for i, key := range keys {
		switch r := s.records[key]; {
		case i < skip, place(key) <= after && !s.is("the index is in no order"):
			continue
		case r.expired(s) && !s.is("List shows what has expired"):
			continue
		case !s.asksFor(q, s.see(r)):
			continue
		case r.twice:
			p.Entries = append(p.Entries, s.entry(key))
		}
		p.Entries = append(p.Entries, s.entry(key))
		if len(p.Entries) == cmp.Or(max(q.Limit, 0), 100) && !s.is("a page ignores its limit") {
			if p.Next = place(key); s.is("a cursor is a number of records") {
				p.Next = fmt.Sprintf("%043d", i+1)
			}
			p.Next += s.nameOf(q)
			s.cursors[p.Next] = true
			break
		}
	}
	return p, nil
}

// nameOf names a query in its cursors.
func (s *naiveStore) nameOf(q store.Query) string {
	if s.is("a cursor does not tell its label") {
		q.Label = ""
	}
	if s.is("a cursor does not tell its states") {
		q.States = nil
	}
	if s.is("a cursor does not tell its query") {
		q = store.Query{}
	}
	return keyOf(fmt.Sprintf("%t %q %v", q.Holding, q.Label, q.States))
}

// cursor returns the place after which the page begins.
func (s *naiveStore) cursor(q store.Query) (after string, err error) {
	text, name := q.Cursor, s.nameOf(q)
	if s.is("what is behind a cursor is not looked at") {
		text = text[:min(len(text), 2*len(name))]
	}
	switch {
	case text == "":
		return "", nil
	case s.cursors[text] && strings.HasSuffix(text, name):
		return strings.TrimSuffix(text, name), nil
	case s.is("a bad cursor is no cursor"):
		return "", nil
	}
	return "", store.ErrBadCursor
}

// asksFor reports whether the query asks for the record.
func (s *naiveStore) asksFor(q store.Query, r store.Record) bool {
	switch {
	case q.Holding && s.is("the index has no filters"):
		return true
	case s.is("List leaves out held records") && r.State == store.Held,
		len(q.States) > 0 && !slices.Contains(q.States, r.State) && !s.is("List ignores the states"),
		q.Label != "" && q.Label != r.Label && !s.is("List ignores the label"),
		r.Age < q.OlderThan && !s.is("List ignores the age"):
		return false
	}
	return true
}

func (s *naiveStore) entry(key string) store.Entry {
	r := s.see(s.records[key])
	if !s.is("List carries the answers") {
		r.Answer = nil
	}
	if s.is("List leaves out the owners") {
		r.Owner = store.Owner{}
	}
	if s.is("List leaves out sealed keys") {
		r.SealedKey = nil
	}
	return store.Entry{Key: key, Record: r}
}
