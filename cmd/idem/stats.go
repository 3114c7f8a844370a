package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
)

func (a *app) stats() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats", Args: cobra.NoArgs,
		Short: "Count all records by route and state; among millions that takes a while",
	}
	cmd.RunE = a.on(func(ctx context.Context, d desk, _ []string) error {
		counted, err := d.Count(ctx)
		if err != nil {
			return err
		}
		list := a.list("ROUTE", "STATE", "RECORDS", "OLDEST")
		for _, c := range counted.Sorted() {
			list.add(c, inspect.Names([]string{c.Route}), c.State, strconv.Itoa(c.Records), span(c.Oldest))
		}
		if len(counted) == 0 {
			list.end("There are no records.")
		}
		list.end("")
		return a.tellBirth(ctx, d)
	})
	return cmd
}

// tellBirth says since when the store has been counting.
func (a *app) tellBirth(ctx context.Context, d desk) error {
	born, err := d.Birth(ctx)
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
