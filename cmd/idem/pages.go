package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// ofIndex adds the flags of a command that shows what a query finds in the index.
func ofIndex(cmd *cobra.Command, q *store.Query) {
	cmd.Flags().StringVar(&q.Label, "route", "", "only those of this route")
	cmd.Flags().IntVar(&q.Limit, "limit", 50, "how many")
	cmd.Flags().StringVar(&q.Cursor, "cursor", "", "where to go on")
}

// A layout is how records are shown.
type layout struct {
	head   []string
	cells  func(inspect.Record) []string
	sought bool // somebody has named what is shown, so that nothing is not found
}

// listPages shows as many records as limit says, of pages that next returns, and a remark on them, or on that there are none.
func (a *app) listPages(as layout, limit int, cursor string, next func(limit int, cursor string) ([]inspect.Record, string, error), none, remark string) error {
	if limit < 1 {
		return usage("--limit is %d, and must be at least 1", limit)
	}
	list, left, sought := a.list(as.head...), limit, as.sought && cursor == ""
	for more := true; more && left > 0; more = cursor != "" {
		found, to, err := next(left, cursor)
		if err != nil {
			return err
		}
		for _, r := range found {
			list.add(r, as.cells(r)...)
		}
		left, cursor = left-len(found), to
	}
	switch {
	case cursor != "" && a.format == asJSON:
		list.add(goesOn{"next", cursor})
		list.end("")
	case cursor != "":
		list.end(fmt.Sprintf("There may be more: --cursor '%s'", plain(cursor)))
	case left == limit && sought:
		return &coded{inspect.ExitNotFound, errors.New(none)}
	case left == limit:
		list.end(none)
	default:
		list.end(remark)
	}
	return nil
}
