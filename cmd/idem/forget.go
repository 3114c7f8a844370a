package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

func (a *app) forget() *cobra.Command {
	v := &verdict{}
	cmd := &cobra.Command{
		Use: "forget RECORD", Args: cobra.ExactArgs(1),
		Short: "Remove a record, so that its request runs as the first",
	}
	v.flags(cmd, a.env)
	cmd.RunE = a.on(func(ctx context.Context, s *source, args []string) error {
		r, err := lookInto(ctx, s, args[0], keepAnswer)
		if err != nil {
			return err
		}
		seen, err := v.about(r.info)
		if err != nil {
			return err
		}
		if r.guard, err = guard(v.on(s)); err != nil {
			return err
		}
		err = r.guard.Forget(ctx, idempotency.Key{Record: r.info.Record}, seen, v.Decision)
		switch {
		case err == nil:
			a.done(v, "forget", forgets(r.info), nil, r.info, seen)
		case errors.Is(err, store.ErrCorrupt) && r.info.State == store.Corrupt: // and another state was seen
			return &changed{seen, r.info}
		case seen == r.info.Seen() && r.info.State == store.Claimed:
			return fmt.Errorf("attempt %d is running, and cannot be forgotten: wait until it has ended, or its lease has", r.info.Attempt)
		}
		return r.orChanged(ctx, seen, err)
	})
	return cmd
}

// forgets says what forgetting a record does.
func forgets(i idempotency.RecordInfo) string {
	says := "The next request with this key runs as the first"
	switch {
	case i.State == store.Completed:
		says += ", and the recorded answer is lost"
	case len(i.Steps) > 0:
		says += fmt.Sprintf(", and makes %s again", quoted(i.Steps))
	}
	return says + ". Right only if nothing of it has happened, or if a repetition does no harm."
}
