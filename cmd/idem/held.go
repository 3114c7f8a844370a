package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A next is where a listing goes on.
type next struct {
	Type   string `json:"type"`
	Cursor string `json:"cursor" jsonschema:"for --cursor"`
}

func number(n int) string { return strconv.Itoa(n) }

// held lists what waits for a decision.
func (a *app) held() *cobra.Command {
	q := store.Query{Holding: true, States: []store.State{store.Held}}
	cmd := &cobra.Command{
		Use: "held", Args: cobra.NoArgs,
		Short: "List the keys that need a decision, oldest first",
	}
	cmd.Flags().StringVar(&q.Label, "route", "", "only those of this route")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "how many")
	cmd.Flags().StringVar(&q.Cursor, "cursor", "", "where to go on")
	cmd.RunE = a.on(func(ctx context.Context, s *source, _ []string) error {
		if q.Limit < 1 {
			return usage("--limit is %d, and must be at least 1", q.Limit)
		}
		g, err := guard(s.records)
		if err != nil {
			return err
		}
		return a.listHeld(ctx, s, g, q)
	})
	return cmd
}

func (a *app) listHeld(ctx context.Context, s *source, g *idempotency.Guard, q store.Query) error {
	list, left := a.list(recordHead...), q.Limit
	for more := true; more && left > 0; more = q.Cursor != "" {
		q.Limit = left
		page, err := listPage(ctx, s, q)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			info, err := inspect.Look(ctx, g, idempotency.Key{Record: e.Key})
			switch {
			case errors.Is(err, store.ErrNotFound) || err == nil && info.State != store.Held && info.State != store.Corrupt:
				continue // somebody has settled it meanwhile
			case errors.Is(err, store.ErrUnreadableHere): // another version can read it
				info = idempotency.RecordInfo{Record: e.Key, State: store.Corrupt}
			case err != nil:
				return err
			}
			list.add(inspect.RecordOf(info), cells(info)...)
			left--
		}
		q.Cursor = page.Next
	}
	switch {
	case q.Cursor != "" && a.format == asJSON:
		list.add(next{"next", q.Cursor})
		list.end("")
	case q.Cursor != "":
		list.end(fmt.Sprintf("There may be more: --cursor %s", q.Cursor))
	case list.n == 0:
		list.end("Nothing is held.")
	default:
		list.end("idem why RECORD says what happened, and what each decision would do.")
	}
	return nil
}

// listPage returns the next records of a query, without those of the library itself.
func listPage(ctx context.Context, s *source, q store.Query) (store.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	page, err := s.List(ctx, q)
	return page.OfKeys(), err
}
