package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A goesOn is where a listing does.
type goesOn struct {
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
	ofIndex(cmd, &q)
	cmd.RunE = a.on(func(ctx context.Context, d desk, _ []string) error {
		some := q.Cursor != ""
		err := a.listPages(inRecords, q.Limit, q.Cursor, func(limit int, cursor string) ([]inspect.Record, string, error) {
			q.Limit, q.Cursor = limit, cursor
			found, next, err := d.Held(ctx, q)
			some = some || len(found) > 0
			return found, next, err
		}, "Nothing is held.", "idem why RECORD says what happened, and what each decision would do.")
		if s, isStore := d.(*source); isStore && err == nil && !some {
			s.adviseOnPrefix(ctx, a)
		}
		return err
	})
	return cmd
}
