package main

import (
	"context"

	"github.com/spf13/cobra"
)

func (a *app) forget() *cobra.Command {
	v := &verdict{}
	cmd := &cobra.Command{
		Use: "forget RECORD", Args: cobra.ExactArgs(1),
		Short: "Remove a record, so that its request runs as the first",
	}
	a.decisionFlags(v, cmd)
	a.target.tombstoneFlag(cmd.Flags())
	cmd.RunE = a.on(func(ctx context.Context, d desk, args []string) error {
		return a.decideBy(ctx, cmd, d, v, args[0], "forget")
	})
	return cmd
}
