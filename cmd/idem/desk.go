package main

import (
	"context"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A desk is where an operator looks and decides: a store, or a service that has a console. All commands but those that
// need the store itself see nothing else.
type desk interface {
	// Held returns the next held records, and where to go on.
	Held(ctx context.Context, q store.Query) ([]inspect.Record, string, error)
	// Running returns the next runs in flight on routes that hold, of all processes, and where to go on.
	Running(ctx context.Context, q store.Query) ([]inspect.Record, string, error)
	// Listing returns the next records of a query, as the store lists them.
	Listing(ctx context.Context, q store.Query) (inspect.List, error)
	// Count counts all records.
	Count(ctx context.Context) (inspect.Tally, error)
	// Birth tells since when the store has forgotten nothing.
	Birth(ctx context.Context) (inspect.Birth, error)
	// Why tells what happened to a record, and what each decision would do.
	Why(ctx context.Context, record string) (inspect.Story, error)
	// Answer returns the recorded answer of a record, and Ask what the resolver of its route says of it.
	Answer(ctx context.Context, record string) (inspect.ShownAnswer, error)
	Ask(ctx context.Context, record string) (inspect.Word, error)
	// OfKey returns the record of a client's key.
	OfKey(ctx context.Context, k idempotency.Key) (inspect.Record, error)
	// Find returns the next records that have a reference or are of a tenant, and where to go on.
	Find(ctx context.Context, f idempotency.Finding) ([]inspect.Record, string, error)
	// Walk returns the next records of a trace or an operation ID ([inspect.Walked]) among those that are held, or in flight
	// on routes that hold, and where to go on.
	Walk(ctx context.Context, by, text, cursor string) ([]inspect.Record, string, error)
	// Decide makes a decision about what was seen of a record, or only says what it would do.
	Decide(ctx context.Context, o inspect.Order) (inspect.Decision, error)
	// Erase forgets the records of a tenant. What was erased before an error is returned, too.
	Erase(ctx context.Context, what idempotency.Erasing) (inspect.Erased, error)
}

// walk looks at all records of a query. One that changes meanwhile may come twice, or not at all.
func walk(ctx context.Context, d desk, q store.Query, f func(inspect.Listed)) error {
	q.Limit = 1000
	for more := true; more; more = q.Cursor != "" {
		page, err := d.Listing(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range page.Records {
			f(r)
		}
		q.Cursor = page.Next
	}
	return nil
}
