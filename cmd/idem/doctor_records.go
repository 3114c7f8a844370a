package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// This file looks at records: whether they can be read, whether runs last, and whose they are.

// mostRead is how many records the doctor reads.
const mostRead = 200

// readable reads some records.
func (d *doctor) readable(ctx context.Context, names []string) error {
	read, newer, broken, kept := 0, 0, 0, inspect.Kept{}
	for _, name := range names {
		if _, other := inspect.Named(name); other != nil || read == mostRead {
			continue
		}
		rec, err := d.source.Get(ctx, name)
		switch {
		case errors.Is(err, store.ErrNotFound):
			continue // it has ended
		case errors.Is(err, store.ErrUnreadableHere):
			newer++
		case errors.Is(err, store.ErrCorrupt):
			broken++
		case err != nil:
			return err
		default:
			if err := d.keep(ctx, kept, name, rec); err != nil {
				return err
			}
		}
		read++
	}
	switch {
	case broken > 0:
		d.say("records", fail, fmt.Sprintf("%d of %d cannot be read", broken, read), "docs/reference/runbook.md, IdempotencyCorrupt")
	case newer > 0:
		d.say("records", warn, fmt.Sprintf("%d of %d have the form of a newer version", newer, read), "use the idem of the newer version, and do not roll the service back behind it")
	default:
		d.say("records", ok, fmt.Sprintf("%d read", read), "")
	}
	return d.forms(ctx, kept, names)
}

// runs looks for runs on routes that hold, of which the index has the oldest first, that go on and on.
func (d *doctor) runs(ctx context.Context) error {
	g, err := guard(d.source.records)
	if err != nil {
		return err
	}
	all, next, err := inspect.LookPage(ctx, timely{d.source.records}.List, func(string) *idempotency.Guard { return g },
		store.Query{Holding: true, States: []store.State{store.Claimed}, Limit: 100})
	if err != nil {
		return err
	}
	var lasts time.Duration
	oldest := ""
	for _, i := range all {
		if age := d.app.now().Sub(i.Started); !i.Started.IsZero() && age > lasts {
			lasts, oldest = age, i.Record
		}
	}
	found := fmt.Sprintf("%d in flight on routes that hold", len(all))
	if next != "" {
		found += ", or more"
	}
	if lasts > 0 {
		found += ", the oldest for " + inspect.Span(lasts)
	}
	d.say("runs", worse(lasts, d.longest, time.Duration(1<<63-1)), found, "idem why "+oldest+": it may hang, and needs a deadline for what it waits for")
	return nil
}

// prefixes looks for records of a longer prefix that begins with this one, and for those of a shorter one that this one begins
// with: the store of the shorter one lists the records of both, and its account may change them.
func (d *doctor) prefixes(ctx context.Context, names []string) error {
	own, found := d.source.target.prefix, ""
	for _, longer := range prefixesOf(names) {
		if longer != "" {
			found = fmt.Sprintf("%q has records of %q below it", own, own+longer)
			break
		}
	}
	shorter, err := d.source.shorterPrefixes(ctx)
	if err != nil {
		return err
	}
	if len(shorter) > 0 {
		if found != "" {
			found += ", and "
		}
		found += fmt.Sprintf("%q is itself below %q, which has records", own, shorter[0])
	}
	if found != "" {
		d.say("prefix", warn, found, "no prefix may be the beginning of another: docs/how-to/redis.md")
		return nil
	}
	d.say("prefix", ok, "it begins no other prefix, and no other begins it", "")
	return nil
}

// lookIntoTable looks at the rows of a table in PostgreSQL: whether they can be read, and how many are dead.
func (d *doctor) lookIntoTable(ctx context.Context, table string) error {
	rows, err := d.source.pool.Query(ctx, "SELECT key FROM "+table+" LIMIT $1", mostRead)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	var dead, alive int64
	err = d.source.pool.QueryRow(ctx, "SELECT coalesce(sum(n_dead_tup), 0)::int8, coalesce(sum(n_live_tup), 0)::int8 FROM pg_stat_all_tables WHERE relid = to_regclass($1)", table).
		Scan(&dead, &alive)
	if err != nil {
		return err
	}
	d.say("bloat", worse(dead, max(deadRows, alive), 1<<62), fmt.Sprintf("%d dead rows beside %d", dead, alive),
		"let autovacuum come more often, and look for transactions that stay open: docs/how-to/postgres-operations.md")
	return d.readable(ctx, names)
}

// deadRows is how many rows may be dead of a table with few records.
const deadRows = 10_000
