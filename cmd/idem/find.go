package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

func (a *app) find() *cobra.Command {
	var k idempotency.Key
	var shared bool
	cmd := &cobra.Command{
		Use: "find (--scope S | --shared) --key K", Args: cobra.NoArgs,
		Short: "Find the record of a client's key",
	}
	cmd.Flags().StringVar(&k.Scope, "scope", "", `whose key it is, as the guard's ScopeFunc returns it; \0 at its beginning stands for a zero byte`)
	cmd.Flags().BoolVar(&shared, "shared", false, "the guard has idempotency.SharedScope")
	cmd.Flags().StringVar(&k.Value, "key", "", "the key, as the client has sent it, without quotes")
	cmd.MarkFlagsOneRequired("scope", "shared")
	cmd.MarkFlagsMutuallyExclusive("scope", "shared")
	_ = cmd.MarkFlagRequired("key")
	cmd.RunE = a.on(func(ctx context.Context, s *source, _ []string) error {
		if shared {
			k.Scope = idempotency.Shared
		} else if rest, ok := strings.CutPrefix(k.Scope, `\0`); ok {
			k.Scope = "\x00" + rest
		}
		if k.Scope == "" || k.Value == "" || len(k.Value) > 255 {
			return usage("--scope and --key must not be empty, and a key has at most 255 bytes")
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
	})
	return cmd
}
