package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

func (a *app) find() *cobra.Command {
	var k idempotency.Key
	var shared bool
	var f idempotency.Finding
	var secret string
	cmd := &cobra.Command{
		Use: "find (--scope S | --shared) --key K | --reference R | --tenant T", Args: cobra.NoArgs,
		Short: "Find the record of a client's key, or those of an order number or a tenant",
	}
	flags := cmd.Flags()
	flags.StringVar(&k.Scope, "scope", "", `whose key it is, as the guard's ScopeFunc returns it; \0 at its beginning stands for a zero byte`)
	flags.BoolVar(&shared, "shared", false, "the guard has idempotency.SharedScope")
	flags.StringVar(&k.Value, "key", "", "the key, as the client has sent it, without quotes")
	flags.StringVar(&f.Reference, "reference", "", "an order number, for example, on routes with idempotency.WithReference")
	flags.StringVar(&f.Scope, "tenant", "", "all records of this scope, on routes with idempotency.WithFindableScope")
	flags.StringVar(&secret, "secret-file", "", "file with the secret of idempotency.WithDerivation, with --reference or --tenant")
	flags.IntVar(&f.Limit, "limit", 50, "how many, with --reference or --tenant")
	flags.StringVar(&f.Cursor, "cursor", "", "where to go on")
	cmd.MarkFlagsOneRequired("key", "reference", "tenant")
	cmd.MarkFlagsMutuallyExclusive("key", "reference", "tenant")
	cmd.MarkFlagsMutuallyExclusive("scope", "shared", "reference", "tenant")
	cmd.RunE = a.on(func(ctx context.Context, s *source, _ []string) error {
		if f.Reference == "" && f.Scope == "" {
			return a.findKey(ctx, s, k, shared)
		}
		if f.Limit < 1 {
			return usage("--limit is %d, and must be at least 1", f.Limit)
		}
		f.Scope = scopeOf(f.Scope)
		opts, err := withSecret(secret)
		if err != nil {
			return err
		}
		g, err := guard(s.records, opts...)
		if err != nil {
			return err
		}
		return a.listFound(ctx, g, f)
	})
	return cmd
}

// scopeOf returns the scope that an argument names.
func scopeOf(arg string) string {
	if rest, ok := strings.CutPrefix(arg, `\0`); ok {
		return "\x00" + rest
	}
	return arg
}

// withSecret returns the options of a guard that has the secret in a file, if one is named.
func withSecret(file string) ([]idempotency.Option, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, usage("--secret-file: %w", err)
	}
	return []idempotency.Option{idempotency.WithDerivation("", data)}, nil
}

// findKey shows the record of a key.
func (a *app) findKey(ctx context.Context, s *source, k idempotency.Key, shared bool) error {
	if k.Scope = scopeOf(k.Scope); shared {
		k.Scope = idempotency.Shared
	}
	if k.Scope == "" || k.Value == "" || len(k.Value) > 255 {
		return usage("--scope, or --shared, and --key must not be empty, and a key has at most 255 bytes")
	}
	g, err := guard(s.records)
	if err != nil {
		return err
	}
	info, err := inspect.Look(ctx, g, k)
	if err != nil {
		return err
	}
	list := a.list(recordHead...)
	list.add(inspect.RecordOf(info), cells(info)...)
	list.end("idem why RECORD says what happened.")
	return nil
}

// listFound shows what is found.
func (a *app) listFound(ctx context.Context, g *idempotency.Guard, f idempotency.Finding) error {
	list, left := a.list(recordHead...), f.Limit
	shown := 0
	for more := true; more && left > 0; more = f.Cursor != "" {
		f.Limit = left
		page, err := g.Find(ctx, f)
		if err != nil {
			return err
		}
		infos, err := inspect.LookAll(ctx, g, page.Records)
		if err != nil {
			return err
		}
		for _, info := range infos {
			list.add(inspect.RecordOf(info), cells(info)...)
			left--
			shown++
		}
		f.Cursor = page.Next
	}
	switch {
	case f.Cursor != "" && a.format == asJSON:
		list.add(next{"next", f.Cursor})
		list.end("")
	case f.Cursor != "":
		list.end(fmt.Sprintf("There may be more: --cursor %s", f.Cursor))
	case shown == 0:
		list.end("Nothing is found: no such request has come, its record has ended, or its route says nothing to be found by.")
	default:
		list.end("idem why RECORD says what happened.")
	}
	return nil
}
