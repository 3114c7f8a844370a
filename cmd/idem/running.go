package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// running lists the runs in flight that the index of the store has: those of routes that hold, of all processes.
func (a *app) running() *cobra.Command {
	q := store.Query{Holding: true, States: []store.State{store.Claimed}}
	cmd := &cobra.Command{
		Use: "running", Args: cobra.NoArgs,
		Short: "List the runs in flight on routes that hold, of all processes, oldest first",
	}
	ofIndex(cmd, &q)
	as := layout{[]string{"RECORD", "ROUTE", "ATTEMPT", "RUNNING", "BEGAN", "RECORDED", "IN DOUBT"}, a.runCells, false}
	cmd.RunE = a.on(func(ctx context.Context, d desk, _ []string) error {
		return a.listPages(as, q.Limit, q.Cursor, func(limit int, cursor string) ([]inspect.Record, string, error) {
			q.Limit, q.Cursor = limit, cursor
			return d.Running(ctx, q)
		}, "Nothing runs on routes that hold.", "A run that lasts may hang: give what it waits for a deadline. idem why RECORD says how far it has come.")
	})
	return cmd
}

// runCells are the row of a run in flight.
func (a *app) runCells(r inspect.Record) []string {
	lasts := "-"
	if began, err := time.Parse(time.RFC3339, r.Started); err == nil {
		lasts = inspect.Span(max(0, a.now().Sub(began)))
	}
	return []string{
		r.Record, inspect.Names([]string{r.Route}), number(r.Attempt), lasts, inspect.Names([]string{r.Started}), inspect.Names(r.Steps), r.Doubtful(),
	}
}
