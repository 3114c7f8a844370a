package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/internal/redisproto"
	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// This file tells in which forms running versions keep records, and which this program reads.

// smallAnswer is how large an answer may be that the doctor reads for its form.
const smallAnswer = 16 << 10

// keep counts the forms of a record that was read, with those of its answer if that is small.
func (d *doctor) keep(ctx context.Context, kept inspect.Kept, name string, rec store.Record) error {
	if rec.State == store.Completed && rec.Size > 0 && rec.Size <= smallAnswer {
		switch whole, err := d.source.GetAnswer(ctx, name); {
		case err == nil:
			rec = whole
		case isAway(err):
			return err
		}
	}
	kept.Add(&rec)
	return nil
}

// forms says what was found of the stored forms.
func (d *doctor) forms(ctx context.Context, kept inspect.Kept, names []string) error {
	all := inspect.FormsOf(d.source.records)
	if err := d.headForms(ctx, kept, all[0].Name, names); err != nil {
		return err
	}
	var read []string
	for _, f := range all {
		read = append(read, f.Name+" "+inspect.Versions(f.Reads))
	}
	found, unread := kept.Says(all)
	if found == "" {
		found = "none"
	}
	result := ok
	if len(unread) > 0 {
		result, found = warn, found+"; not read here: "+strings.Join(unread, ", ")
	}
	d.say("forms", result, found+"; this idem reads "+strings.Join(read, ", "), "use the idem of the newer version, and do not roll the service back behind it")
	return nil
}

// headForms counts the versions of the form in which the store itself keeps those records, also of those that it cannot read.
func (d *doctor) headForms(ctx context.Context, kept inspect.Kept, form string, names []string) error {
	if d.source.redis != nil {
		return d.headersInRedis(ctx, kept, form, names)
	}
	const ofRows = "SELECT " + sqlrecord.FormOfRow + " FROM %s LIMIT %d"
	if d.source.pool != nil {
		rows, err := d.source.pool.Query(ctx, fmt.Sprintf(ofRows, d.table(), mostRead))
		if err != nil {
			return err
		}
		versions, err := pgx.CollectRows(rows, pgx.RowTo[int])
		for _, v := range versions {
			kept.Count(form, v)
		}
		return err
	}
	rows, err := d.source.file.QueryContext(ctx, fmt.Sprintf(ofRows, "idempotency_records", mostRead))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v int
		if err := rows.Scan(&v); err != nil {
			return err
		}
		kept.Count(form, v)
	}
	return rows.Err()
}

// headersInRedis looks at the first byte of records. What is none is told by another check.
func (d *doctor) headersInRedis(ctx context.Context, kept inspect.Kept, form string, names []string) error {
	asked := names[:min(len(names), mostRead)]
	replies, err := d.source.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range asked {
			p.HGet(ctx, d.source.target.prefix+name, redisproto.FieldHeader)
		}
		return nil
	})
	if err != nil && isAway(err) {
		return err
	}
	for i, reply := range replies {
		if _, other := inspect.Named(asked[i]); other != nil {
			continue
		}
		cmd, _ := reply.(*redis.StringCmd)
		switch header, err := cmd.Result(); {
		case err == nil && header != "":
			kept.Count(form, int(header[0]))
		case err != nil && !errors.Is(err, redis.Nil) && isAway(err):
			return err
		}
	}
	return nil
}
