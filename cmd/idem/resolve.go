package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/idempotency"
	"example.com/idempotency/internal/inspect"
	"example.com/idempotency/store"
)

// A verdict is what the flags of resolve and forget say.
type verdict struct {
	idempotency.Resolution
	seen   string
	dryRun bool
	expect int // so many keys are decided about
}

// decisionFlags adds what both commands take.
func (a *app) decisionFlags(v *verdict, cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.Reason, "reason", "", "how you found it out, for whoever asks later")
	a.target.actorFlag(cmd.Flags(), a.env)
	cmd.Flags().StringVar(&v.seen, "seen", "", "what idem why has shown as seen: the decision is about that and nothing newer")
	cmd.Flags().BoolVar(&v.dryRun, "dry-run", false, "say what would happen, and change nothing")
	cmd.Flags().IntVar(&v.expect, "expect", 0, "decide about all keys that were held on the route and in the minute of RECORD, if they are so many")
	_ = cmd.MarkFlagRequired("reason")
}

// decideBy makes the decision that the flags of a command say, about one record or all that are like it.
func (a *app) decideBy(ctx context.Context, cmd *cobra.Command, d desk, v *verdict, arg, word string) error {
	now, o, err := v.about(ctx, d, arg, word)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("expect") {
		return a.decideAlike(ctx, d, now, o, v.expect)
	}
	_, err = a.decide(ctx, d, o, now.State)
	return err
}

// about looks at a record, and returns what is there and what is to be decided about it, still without an answer.
func (v *verdict) about(ctx context.Context, d desk, arg, word string) (now inspect.Record, o inspect.Order, err error) {
	record, err := named(arg)
	if err != nil {
		return now, o, err
	}
	story, err := d.Why(ctx, record)
	if err != nil {
		return now, o, err
	}
	now, o = story.Record, inspect.Order{Record: record, Word: word, Resolution: v.Resolution, DryRun: v.dryRun}
	seen := v.seen
	switch {
	case strings.TrimSpace(v.Reason) == "":
		return now, o, usage("--reason is empty: say how you found it out, for whoever asks later")
	case seen == "" && !v.dryRun:
		return now, o, usage("--seen is missing: decide about what you have looked into, as idem why %s has shown it", record)
	case seen == "":
		seen = now.Seen
	}
	if err = o.Seen.UnmarshalText([]byte(seen)); err != nil {
		err = usage("--seen: %w", err)
	}
	return now, o, err
}

// done tells what a decision has done, or would do.
func (a *app) done(d inspect.Decision) {
	list, verb := a.list(), "Done, decision "+plain(d.ID)+": "
	if a.format == asJSON {
		list.add(d)
		return
	}
	if d.DryRun {
		verb = "Dry run, nothing was changed. It would do this: "
	}
	list.end(plain(d.Decision + " of " + d.Record + ", seen as " + d.Seen + ", by " + inspect.Names([]string{d.Actor}) + ": " + d.Reason))
	list.end(verb + plain(d.Says))
	if d.Answer != nil {
		list.end("The answer: " + plain(d.Answer.String()))
	}
}

func (a *app) resolve() *cobra.Command {
	v, given := &verdict{}, &given{}
	cmd := &cobra.Command{
		Use: "resolve RECORD final|not-executed|resume", Args: cobra.ExactArgs(2),
		Short: "Decide about a held key",
	}
	a.decisionFlags(v, cmd)
	given.flags(cmd)
	a.target.unsealedFlag(cmd.Flags())
	cmd.Flags().StringArrayVar(&v.NotDone, "not-done", nil, "a step in doubt that has not happened, and cannot happen any more")
	a.target.ttlFlag(cmd.Flags())
	cmd.RunE = a.on(func(ctx context.Context, d desk, args []string) error {
		if err := given.to(&v.Resolution, args[1], a.in); err != nil {
			return err
		}
		return a.decideBy(ctx, cmd, d, v, args[0], args[1])
	})
	return cmd
}

// decide makes a decision about a record that is in a state, and tells it, or returns what was not decided.
func (a *app) decide(ctx context.Context, d desk, o inspect.Order, state string) (inspect.Decision, error) {
	done, err := d.Decide(ctx, o)
	if err != nil {
		return done, undecided(done, state, err)
	}
	a.done(done)
	return done, nil
}

// undecided returns why a decision was not made, and what to do now.
func undecided(d inspect.Decision, state string, err error) error {
	_, changed := errors.AsType[*inspect.Changed](err)
	switch {
	case changed:
		return fmt.Errorf("%w Look again: idem why %s", err, d.Record)
	case state == store.Corrupt.String():
		return fmt.Errorf("%w: see idem why", err)
	case codeOf(err) != inspect.ExitUnreachable || d.DryRun:
		return err
	}
	by := ""
	if d.Actor != "" {
		by = " by " + d.Actor
	}
	return fmt.Errorf("%w: %s of %s%s (%s) may have been recorded all the same. Repeat the command, which does no harm, or look: idem why %s",
		err, d.Decision, d.Record, by, d.Reason, d.Record)
}
