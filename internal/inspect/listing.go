package inspect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// This file is about many records: pages of them, what a listing tells of each, and how many there are.

// A Pager returns a page of a store.
type Pager func(context.Context, store.Query) (store.Page, error)

// LookPage returns what is known of the next records of a query, each by the guard of its route, and where to go on. It
// leaves out those that have left the states of the query meanwhile.
func LookPage(ctx context.Context, pages Pager, guardOf func(route string) *idempotency.Guard, q store.Query) (found []idempotency.RecordInfo, next string, err error) {
	page, err := pages(ctx, q)
	if err != nil {
		return nil, "", err
	}
	for _, e := range page.Entries {
		i, err := Look(ctx, guardOf(e.Record.Label), idempotency.Key{Record: e.Key})
		switch {
		case errors.Is(err, store.ErrNotFound) || err == nil && len(q.States) > 0 && !slices.Contains(q.States, i.State) && i.State != store.Corrupt:
			continue // it has settled meanwhile
		case errors.Is(err, store.ErrUnreadableHere): // another version can read it
			i = idempotency.RecordInfo{Record: e.Key, State: store.Corrupt}
		case err != nil:
			return nil, "", err
		}
		if i.State == store.Corrupt { // the list knows more
			i.Route, i.Age, i.Attempt = e.Record.Label, e.Record.Age, e.Record.Attempt
		}
		found = append(found, i)
	}
	return found, page.Next, nil
}

// RunsOf returns what is told of runs in flight, oldest first.
func RunsOf(found []idempotency.RecordInfo) []Record {
	slices.SortStableFunc(found, func(a, b idempotency.RecordInfo) int { return a.Started.Compare(b.Started) })
	all := []Record{}
	for _, i := range found {
		all = append(all, RecordOf(i))
	}
	return all
}

// A Listed record is what a listing of the store tells of one.
type Listed struct {
	Record  string `json:"record"`
	Route   string `json:"route"`
	State   string `json:"state" jsonschema:"claimed, lapsed, released, completed, held or corrupt"`
	Attempt int    `json:"attempt"`
	Age     int64  `json:"age_seconds" jsonschema:"since it was last claimed, renewed, completed, released or held"`
	Seen    string `json:"seen" jsonschema:"what a decision takes as seen"`
}

// ListedOf returns what is told of an entry.
func ListedOf(e store.Entry) Listed {
	return Listed{e.Key, e.Record.Label, entryState(e), e.Record.Attempt, int64(e.Record.Age / time.Second), e.Record.Seen().String()}
}

func entryState(e store.Entry) string {
	return StateOf(idempotency.RecordInfo{State: e.Record.State, Lease: e.Record.Lease})
}

// A List is a page of a listing.
type List struct {
	Type    string   `json:"type"`
	Records []Listed `json:"records" jsonschema:"none, of a page in which nothing fits"`
	Next    string   `json:"next,omitempty" jsonschema:"cursor of the next page"`
}

// A Count is how many records of a route are in a state.
type Count struct {
	Type    string `json:"type"`
	Route   string `json:"route"`
	State   string `json:"state" jsonschema:"claimed, lapsed, released, completed or held"`
	Records int    `json:"records"`
	Oldest  int64  `json:"oldest_seconds" jsonschema:"the greatest age among them"`
}

// Counts are how many records a part of the store has.
type Counts struct {
	Type   string  `json:"type"`
	Counts []Count `json:"counts" jsonschema:"of the records of this part; add them to those of the others"`
	Next   string  `json:"next,omitempty" jsonschema:"cursor of the next part"`
}

// A Tally counts records by route and state.
type Tally map[[2]string]Count

// Entry counts an entry of a listing.
func (t Tally) Entry(e store.Entry) {
	t.Add(Count{Route: e.Record.Label, State: entryState(e), Records: 1, Oldest: int64(e.Record.Age / time.Second)})
}

// Add adds what somebody else has counted.
func (t Tally) Add(c Count) {
	of := [2]string{c.Route, c.State}
	t[of] = Count{"count", c.Route, c.State, t[of].Records + c.Records, max(t[of].Oldest, c.Oldest)}
}

// Sorted returns the counts by route and state.
func (t Tally) Sorted() []Count {
	return slices.SortedFunc(maps.Values(t), func(x, y Count) int {
		return cmp.Or(cmp.Compare(x.Route, y.Route), cmp.Compare(x.State, y.State))
	})
}
