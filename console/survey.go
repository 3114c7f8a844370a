package console

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/idempotency/store"
)

// This file walks through the store's index of what is held or runs on routes that hold: to count it, and to name the members
// of a group.

// A groupName is what records have in common that one cause may have: their route, and the minute in which they were held.
type groupName struct {
	route  string
	minute time.Time
}

// groupOf returns the group of a record that became what it is so long before now.
func groupOf(now time.Time, route string, age time.Duration) groupName {
	return groupName{route, now.Add(-age).UTC().Truncate(time.Minute)}
}

// An index is that of a store, and a clock to read it by.
type index struct {
	store.Lister
	now func() time.Time
}

// walk calls f with a page of the index after the other, of a route or of all, until f returns false, and reports whether it came to
// the end. Each record comes once.
func (x index) walk(ctx context.Context, route string, states []store.State, f func([]store.Entry) bool) (whole bool, err error) {
	q, known := store.Query{Holding: true, States: states, Label: route, Limit: 1000}, map[string]bool{}
	for more := true; more; more = q.Cursor != "" {
		page, err := x.List(ctx, q)
		if err != nil {
			return false, err
		}
		q.Cursor = page.Next
		if !f(slices.DeleteFunc(slices.Clone(page.Entries), func(e store.Entry) bool {
			again := known[e.Key]
			known[e.Key] = true
			return again
		})) {
			break
		}
	}
	return q.Cursor == "", nil
}

const (
	// mostSurveyed is how many records of the index the first screen counts, and surveyFor for how long.
	mostSurveyed = 10_000
	surveyFor    = time.Second
)

// A survey is what the index has, as far as it was counted: to its end if it is whole.
type survey struct {
	held    int
	oldest  time.Duration
	of      map[groupName]int
	claimed []store.Entry // oldest first
	whole   bool
}

// survey counts what is held and what runs, of a route or of all.
func (x index) survey(ctx context.Context, route string) (s survey, err error) {
	began := x.now()
	s.of = map[groupName]int{}
	s.whole, err = x.walk(ctx, route, []store.State{store.Held, store.Claimed}, func(page []store.Entry) bool {
		now := x.now()
		for _, e := range page {
			if e.Record.State == store.Claimed {
				s.claimed = append(s.claimed, e)
				continue
			}
			s.held, s.oldest = s.held+1, max(s.oldest, e.Record.Age)
			if isMember(e) {
				s.of[groupOf(now, e.Record.Label, e.Record.Age)]++
			}
		}
		return s.held+len(s.claimed) < mostSurveyed && now.Sub(began) < surveyFor
	})
	return s, err
}

// A member of a group is a held record, and what was seen of it.
type member struct {
	record string
	seen   store.Seen
}

// isMember reports whether a held record is of a group. One that cannot be read has no route, and is decided by itself.
func isMember(e store.Entry) bool { return e.Record.Attempt > 0 }

// members returns those of a group, oldest first.
func (x index) members(ctx context.Context, of groupName) (all []member, err error) {
	_, err = x.walk(ctx, of.route, []store.State{store.Held}, func(page []store.Entry) bool {
		now := x.now()
		for _, e := range page {
			if isMember(e) && groupOf(now, e.Record.Label, e.Record.Age) == of {
				all = append(all, member{e.Key, e.Record.Seen()})
			}
		}
		return true
	})
	return all, err
}

// behind returns the members by their names, without those up to the one that is named.
func behind(all []member, name string) []member {
	all = slices.SortedFunc(slices.Values(all), func(a, b member) int { return strings.Compare(a.record, b.record) })
	return slices.DeleteFunc(all, func(m member) bool { return m.record <= name })
}

// seenOf tells how many members there are, and which, as they were seen.
func seenOf(sorted []member) string {
	sum := sha256.New()
	for _, m := range sorted {
		sum.Write([]byte(m.record + " " + m.seen.String() + "\n"))
	}
	return fmt.Sprintf("%d/%x", len(sorted), sum.Sum(nil)[:8])
}
