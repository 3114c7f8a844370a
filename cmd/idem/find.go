package main

import (
	"context"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

func (a *app) find() *cobra.Command {
	var k idempotency.Key
	var shared bool
	var f idempotency.Finding
	var trace, operation string
	cmd := &cobra.Command{
		Use: "find (--scope S | --shared) --key K | --reference R | --tenant T | --trace T | --operation ID", Args: cobra.NoArgs,
		Short: "Find the record of a client's key, or those of an order number, a tenant, a trace or an operation ID",
	}
	flags := cmd.Flags()
	flags.StringVar(&k.Scope, "scope", "", `whose key it is, as the guard's ScopeFunc returns it; \0 at its beginning stands for a zero byte`)
	flags.BoolVar(&shared, "shared", false, "the guard has idempotency.SharedScope")
	flags.StringVar(&k.Value, "key", "", "the key, as the client has sent it, without quotes")
	flags.StringVar(&f.Reference, "reference", "", "an order number, for example, on routes with idempotency.WithReference")
	flags.StringVar(&f.Scope, "tenant", "", "all records of this scope, on routes with idempotency.WithFindableScope")
	flags.StringVar(&trace, "trace", "", "the runs of this trace among held records and runs in flight on routes that hold: an ID, or a traceparent")
	flags.StringVar(&operation, "operation", "", "the record with this operation ID, as logs have it, among the same on routes with idempotency.WithKeptKeys; needs --server")
	a.target.secretFlag(flags)
	flags.IntVar(&f.Limit, "limit", 50, "how many, without --key")
	flags.StringVar(&f.Cursor, "cursor", "", "where to go on")
	cmd.MarkFlagsOneRequired("key", "reference", "tenant", "trace", "operation")
	cmd.MarkFlagsMutuallyExclusive("key", "reference", "tenant", "trace", "operation")
	cmd.MarkFlagsMutuallyExclusive("scope", "shared", "reference", "tenant", "trace", "operation")
	cmd.RunE = a.on(func(ctx context.Context, d desk, _ []string) error {
		switch {
		case trace != "":
			return a.walk(ctx, d, inspect.ByTrace, trace, f.Limit, f.Cursor)
		case operation != "":
			return a.walk(ctx, d, inspect.ByOperation, operation, f.Limit, f.Cursor)
		case f.Reference == "" && f.Scope == "":
			return a.findKey(ctx, d, k, shared)
		}
		f.Scope = inspect.ScopeNamed(f.Scope)
		return a.listPages(inSearch, f.Limit, f.Cursor, func(limit int, cursor string) ([]inspect.Record, string, error) {
			f.Limit, f.Cursor = limit, cursor
			return d.Find(ctx, f)
		}, "nothing is found: no such request has come, its record has ended or was forgotten, its route says nothing to be found by, or the service has a secret that is missing here (--secret-file, or --server).", "idem why RECORD says what happened.")
	})
	return cmd
}

// walked says what --trace and --operation take, and where else to look if they find nothing.
var walked = map[string][2]string{
	inspect.ByTrace: {
		"the ID of a trace, which has 32 hexadecimal digits and not only zeros, or a traceparent",
		"The span of a request names any record, as idempotency.record, and so does each line of the log.",
	},
	inspect.ByOperation: {
		"an operation ID, which has 32 hexadecimal digits",
		"Only routes with WithKeptKeys tell it. Each line of the log that has an operation ID names the record, too.",
	},
}

// walk shows the records of a trace or an operation ID among what waits for somebody: no store has an index of these.
func (a *app) walk(ctx context.Context, d desk, by, text string, limit int, cursor string) error {
	if _, ok := inspect.Walked(by, text); !ok {
		return usage("--%s is %s", by, walked[by][0])
	}
	return a.listPages(inSearch, limit, cursor, func(_ int, cursor string) ([]inspect.Record, string, error) { return d.Walk(ctx, by, text, cursor) },
		"nothing is found among held records and runs in flight on routes that hold. "+walked[by][1], "idem why RECORD says what happened.")
}

// findKey shows the record of a key.
func (a *app) findKey(ctx context.Context, d desk, k idempotency.Key, shared bool) error {
	if k.Scope = inspect.ScopeNamed(k.Scope); shared {
		k.Scope = store.Shared
	}
	if k.Scope == "" || k.Value == "" || len(k.Value) > 255 {
		return usage("--scope, or --shared, and --key must not be empty, and a key has at most 255 bytes")
	}
	r, err := d.OfKey(ctx, k)
	if err != nil {
		return err
	}
	list := a.list(recordHead...)
	list.add(r, cells(r)...)
	list.end("idem why RECORD says what happened.")
	return nil
}
