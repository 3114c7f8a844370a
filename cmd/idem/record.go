package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

var recordHead = []string{"RECORD", "ROUTE", "STATE", "CAUSE", "ATTEMPT", "AGE", "RECORDED", "IN DOUBT", "ENDS"}

// cells are the row of a record under recordHead.
func cells(i idempotency.RecordInfo) []string {
	r, ends := inspect.RecordOf(i), "never"
	if r.Ends != nil {
		ends = "in " + inspect.Span(i.TTL)
	}
	return []string{
		r.Record, inspect.Names([]string{r.Route}), r.State, inspect.Names([]string{r.Cause}), number(r.Attempt), inspect.Span(i.Age),
		inspect.Names(r.Steps), inspect.Names(r.InDoubt), ends,
	}
}

// guard returns a guard that looks at the records of a store and decides about them.
func guard(st store.Store, opts ...idempotency.Option) (*idempotency.Guard, error) {
	opts = append(opts, idempotency.WithLogger(slog.New(slog.DiscardHandler)))
	return idempotency.New(st, idempotency.SharedScope, opts...)
}

// lookInto looks at a record, and at what may be decided about it.
func lookInto(ctx context.Context, s *source, name string, ttl time.Duration, opts ...idempotency.Option) (*inspect.Ruling, error) {
	key, err := inspect.Named(strings.TrimSpace(name))
	if err != nil {
		return nil, usage("%w; idem find has it for a key of a client", err)
	}
	r := &inspect.Ruling{TTL: ttl, NotDone: "name it with --not-done"}
	if r.Guard, err = guard(s.records, append(opts, idempotency.WithTTL(ttl))...); err != nil {
		return nil, usage("%w", err)
	}
	return r, r.LookInto(ctx, s.records, key)
}
