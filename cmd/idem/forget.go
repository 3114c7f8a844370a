package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency"
)

func (a *app) forget() *cobra.Command {
	v := &verdict{}
	cmd := &cobra.Command{
		Use: "forget RECORD", Args: cobra.ExactArgs(1),
		Short: "Remove a record, so that its request runs as the first",
	}
	v.flags(cmd, a.env)
	tombstone := tombstoneFlag(cmd)
	cmd.RunE = a.on(func(ctx context.Context, s *source, args []string) error {
		r, err := lookInto(ctx, s, args[0], keepAnswer, idempotency.WithTombstones(*tombstone))
		if err != nil {
			return err
		}
		seen, err := v.about(r.Info)
		if err != nil {
			return err
		}
		says, err := r.Forget(v.context(ctx), seen, v.Decision)
		if err != nil {
			return v.maybe("forget", r, orChanged(ctx, r, seen, err))
		}
		a.done(v, "forget", says, nil, r, seen)
		return nil
	})
	return cmd
}

// tombstoneFlag is how long it stays known what was forgotten.
func tombstoneFlag(cmd *cobra.Command) *time.Duration {
	const days = 30 * 24 * time.Hour
	return cmd.Flags().Duration("tombstone", days, "how long idem why tells who has forgotten it, and why; 0 for not at all")
}
