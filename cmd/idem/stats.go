package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A count is how many records of a route are in a state.
type count struct {
	Type    string `json:"type"`
	Route   string `json:"route"`
	State   string `json:"state" jsonschema:"claimed, lapsed, released, completed or held"`
	Records int    `json:"records"`
	Oldest  int64  `json:"oldest_seconds" jsonschema:"the greatest age among them"`
}

func (a *app) stats() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats", Args: cobra.NoArgs,
		Short: "Count all records by route and state; among millions that takes a while",
	}
	cmd.RunE = a.on(func(ctx context.Context, s *source, _ []string) error {
		counts := map[count]*count{}
		err := walk(ctx, s, store.Query{}, func(e store.Entry) {
			of := count{Type: "count", Route: e.Record.Label, State: inspect.StateOf(asInfo(e.Record))}
			if counts[of] == nil {
				counts[of] = &count{Type: of.Type, Route: of.Route, State: of.State}
			}
			counts[of].Records++
			counts[of].Oldest = max(counts[of].Oldest, int64(e.Record.Age/time.Second))
		})
		if err != nil {
			return err
		}
		list := a.list("ROUTE", "STATE", "RECORDS", "OLDEST")
		for _, c := range slices.SortedFunc(maps.Values(counts), func(x, y *count) int {
			return cmp.Or(cmp.Compare(x.Route, y.Route), cmp.Compare(x.State, y.State))
		}) {
			list.add(*c, inspect.Names([]string{c.Route}), c.State, strconv.Itoa(c.Records), inspect.Span(time.Duration(c.Oldest)*time.Second))
		}
		if list.n == 0 {
			list.end("There are no records.")
		}
		list.end("")
		return a.tellBirth(ctx, s)
	})
	return cmd
}

// tellBirth says since when the store has been counting.
func (a *app) tellBirth(ctx context.Context, s *source) error {
	g, err := guard(s.records)
	if err != nil {
		return err
	}
	born, err := inspect.BirthOf(ctx, g)
	switch list := a.list(); {
	case err != nil:
		return err
	case a.format == asJSON:
		list.add(born)
	default:
		list.end("The store was born: " + born.Says)
	}
	return nil
}

// asInfo is what a listing tells of a record that stateOf needs.
func asInfo(r store.Record) idempotency.RecordInfo {
	return idempotency.RecordInfo{State: r.State, Lease: r.Lease}
}

// walk looks at all records of a query. One that changes meanwhile may come twice, or not at all.
func walk(ctx context.Context, s *source, q store.Query, f func(store.Entry)) error {
	q.Limit = 1000
	for more := true; more; more = q.Cursor != "" {
		page, err := listPage(ctx, s, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			f(e)
		}
		q.Cursor = page.Next
	}
	return nil
}
