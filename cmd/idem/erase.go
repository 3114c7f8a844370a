package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
)

// erase forgets all of a tenant.
func (a *app) erase() *cobra.Command {
	var what idempotency.Erasing
	var secret string
	cmd := &cobra.Command{
		Use: "erase --tenant T", Args: cobra.NoArgs,
		Short: "Remove all records of a tenant that are not in flight; retries of their keys run again",
	}
	flags := cmd.Flags()
	flags.StringVar(&what.Scope, "tenant", "", `the scope, on routes with idempotency.WithFindableScope; \0 at its beginning stands for a zero byte`)
	flags.StringVar(&secret, "secret-file", "", "file with the secret of idempotency.WithDerivation")
	flags.BoolVar(&what.Held, "held", false, "also what is held: its outcome is unknown for ever then")
	flags.BoolVar(&what.DryRun, "dry-run", false, "say what would happen, and change nothing")
	flags.StringVar(&what.Reason, "reason", "", "why, for whoever asks later")
	flags.StringVar(&what.Actor, "actor", a.env("USER"), "who decides")
	_ = cmd.MarkFlagRequired("tenant")
	_ = cmd.MarkFlagRequired("reason")
	cmd.RunE = a.on(func(ctx context.Context, s *source, _ []string) error {
		if what.Scope == "" || strings.TrimSpace(what.Reason) == "" {
			return usage("--tenant and --reason must not be empty")
		}
		what.Scope = scopeOf(what.Scope)
		opts, err := withSecret(secret)
		if err != nil {
			return err
		}
		g, err := guard(s.records, opts...)
		if err != nil {
			return err
		}
		done, err := g.Erase(ctx, what)
		a.tellErased(what, done)
		return err
	})
	return cmd
}

// tellErased tells what was erased, also before an error.
func (a *app) tellErased(what idempotency.Erasing, d idempotency.Erased) {
	list, verb := a.list(), "Erased"
	if what.DryRun {
		verb = "Dry run, nothing was changed. It would erase"
	}
	if a.format == asJSON {
		list.add(inspect.Erased{
			Type: "erased", DryRun: what.DryRun, Completed: d.Completed, Unanswered: d.Unanswered, Held: d.Held,
			HeldLeft: d.HeldLeft, InFlight: d.InFlight, Changed: d.Changed,
		})
		return
	}
	list.end(fmt.Sprintf("%s %d completed, whose retries run again, %d without an answer, and %d held.", verb, d.Completed, d.Unanswered, d.Held))
	if left := d.HeldLeft + d.InFlight + d.Changed; left > 0 {
		list.end(fmt.Sprintf("Left: %s held, %s in flight, %s changed meanwhile. Look at what is held before you use --held, and repeat for the others.",
			number(d.HeldLeft), number(d.InFlight), number(d.Changed)))
	}
}
