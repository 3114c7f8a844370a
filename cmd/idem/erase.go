package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

// erase forgets all of a tenant.
func (a *app) erase() *cobra.Command {
	var what idempotency.Erasing
	cmd := &cobra.Command{
		Use: "erase --tenant T", Args: cobra.NoArgs,
		Short: "Remove all records of a tenant that are not in flight; retries of their keys run again",
	}
	flags := cmd.Flags()
	flags.StringVar(&what.Scope, "tenant", "", `the scope, on routes with idempotency.WithFindableScope; \0 at its beginning stands for a zero byte`)
	a.target.secretFlag(flags)
	flags.BoolVar(&what.Held, "held", false, "also what is held: its outcome is unknown for ever then")
	flags.DurationVar(&what.OlderThan, "older-than", 0, "leave younger records, so that no retry of their keys runs again: as long as clients retry")
	flags.BoolVar(&what.DryRun, "dry-run", false, "say what would happen, and change nothing")
	flags.StringVar(&what.Reason, "reason", "", "why, for whoever asks later")
	a.target.actorFlag(flags, a.env)
	a.target.tombstoneFlag(flags)
	_ = cmd.MarkFlagRequired("tenant")
	_ = cmd.MarkFlagRequired("reason")
	cmd.RunE = a.on(func(ctx context.Context, d desk, _ []string) error {
		if what.Scope == "" || strings.TrimSpace(what.Reason) == "" {
			return usage("--tenant and --reason must not be empty")
		}
		if what.OlderThan != 0 && what.OlderThan < time.Second {
			return usage("--older-than is %s, and must be at least 1s", what.OlderThan)
		}
		what.Scope = inspect.ScopeNamed(what.Scope)
		done, err := d.Erase(ctx, what)
		if done.Type != "" {
			a.tellErased(done)
		}
		if codeOf(err) == inspect.ExitUnreachable && !what.DryRun {
			err = fmt.Errorf("%w: some may have been erased by now. Repeat the command, which erases what is left, or look with --dry-run", err)
		}
		if err == nil && done.Erases()+done.HeldLeft+done.InFlight+done.Younger+done.Changed == 0 {
			err = &coded{inspect.ExitNotFound, errors.New("nothing is found of this tenant: its name is what ScopeFunc returns, letter by letter, and its route needs WithFindableScope. A service with a secret needs --secret-file, or --server. Or all is gone")}
		}
		return err
	})
	return cmd
}

// tellErased tells what was erased, also before an error.
func (a *app) tellErased(d inspect.Erased) {
	list, verb := a.list(), "Erased"
	if d.DryRun {
		verb = "Dry run, nothing was changed. It would erase"
	}
	if a.format == asJSON {
		list.add(d)
		return
	}
	list.end(fmt.Sprintf("%s %d completed, whose retries run again, %d without an answer, and %d held.", verb, d.Completed, d.Unanswered, d.Held))
	if d.OlderThan > 0 {
		list.end(fmt.Sprintf("Left: %s younger than %s. Repeat when they are older; answers also end by themselves.", number(d.Younger), inspect.Span(time.Duration(d.OlderThan)*time.Second)))
	}
	if left := d.HeldLeft + d.InFlight + d.Changed; left > 0 {
		list.end(fmt.Sprintf("Left: %s held, %s in flight, %s changed meanwhile. Look at what is held before you use --held, and repeat for the others.",
			number(d.HeldLeft), number(d.InFlight), number(d.Changed)))
	}
}
