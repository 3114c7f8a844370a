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
	"example.com/idempotency/store"
)

// A verdict is what the flags of resolve and forget say.
type verdict struct {
	idempotency.Resolution
	seen   string
	dryRun bool
}

// flags adds what both commands take.
func (v *verdict) flags(cmd *cobra.Command, env func(string) string) {
	cmd.Flags().StringVar(&v.Reason, "reason", "", "how you found it out, for whoever asks later")
	cmd.Flags().StringVar(&v.Actor, "actor", env("USER"), "who decides")
	cmd.Flags().StringVar(&v.seen, "seen", "", "what idem why has shown as seen: the decision is about that and nothing newer")
	cmd.Flags().BoolVar(&v.dryRun, "dry-run", false, "say what would happen, and change nothing")
	_ = cmd.MarkFlagRequired("reason")
}

// about returns what the decision is about, of a record that was looked at.
func (v *verdict) about(now idempotency.RecordInfo) (seen store.Seen, err error) {
	switch {
	case strings.TrimSpace(v.Reason) == "":
		return seen, usage("--reason is empty: say how you found it out, for whoever asks later")
	case v.seen != "":
		if err = seen.UnmarshalText([]byte(v.seen)); err != nil {
			err = usage("--seen: %w", err)
		}
		return seen, err
	case v.dryRun:
		return now.Seen(), nil
	default:
		return seen, usage("--seen is missing: decide about what you have looked into, as idem why %s has shown it", now.Record)
	}
}

// context is that of a decision.
func (v *verdict) context(ctx context.Context) context.Context {
	if v.dryRun {
		return inspect.Rehearse(ctx)
	}
	return ctx
}

// done tells what a decision has done, or would do.
func (a *app) done(v *verdict, word, says string, recorded *inspect.Answer, r *inspect.Ruling, seen store.Seen) {
	i, list, verb := r.Info, a.list(), "Done, decision "+r.ID+": "
	if v.dryRun {
		verb = "Dry run, nothing was changed. It would do this: "
	}
	if a.format != asJSON {
		list.end(plain(word + " of " + i.Record + ", seen as " + seen.String() + ", by " + inspect.Names([]string{v.Actor}) + ": " + v.Reason))
		list.end(verb + plain(says))
		if recorded != nil {
			list.end("The answer: " + plain(recorded.String()))
		}
		return
	}
	list.add(inspect.Decision{
		Type: "decision", Record: i.Record, Decision: word, Allowed: true, DryRun: v.dryRun, Says: says, Answer: recorded,
		Seen: seen.String(), ID: r.ID, Actor: v.Actor, Reason: v.Reason,
	})
}

func (a *app) resolve() *cobra.Command {
	v, given := &verdict{}, &given{}
	cmd := &cobra.Command{
		Use: "resolve RECORD final|not-executed|resume", Args: cobra.ExactArgs(2),
		Short: "Decide about a held key",
	}
	v.flags(cmd, a.env)
	given.flags(cmd)
	cmd.Flags().StringArrayVar(&v.NotDone, "not-done", nil, "a step in doubt that has not happened, and cannot happen any more")
	expect := cmd.Flags().Int("expect", 0, "decide about all keys that were held on the route and in the minute of RECORD, if they are so many")
	ttl := ttlFlag(cmd)
	cmd.RunE = a.on(func(ctx context.Context, s *source, args []string) error {
		r, err := lookInto(ctx, s, args[0], *ttl)
		if err != nil {
			return err
		}
		seen, err := v.about(r.Info)
		if err != nil {
			return err
		}
		if err := given.to(&v.Resolution, args[1], a.in); err != nil {
			return err
		}
		if cmd.Flags().Changed("expect") {
			return a.decideAlike(ctx, s, v, args[1], r, seen, *expect)
		}
		return a.decide(ctx, v, args[1], r, seen)
	})
	return cmd
}

// decide makes a decision about a record that was looked into, and tells it.
func (a *app) decide(ctx context.Context, v *verdict, word string, r *inspect.Ruling, seen store.Seen) error {
	recorded := inspect.AnswerOf(&v.Resolution)
	says, err := r.Of(v.context(ctx), word, seen, v.Resolution)
	if err != nil {
		return v.maybe(word, r, orChanged(ctx, r, seen, err))
	}
	a.done(v, word, says, recorded, r, seen)
	return nil
}

// orChanged returns err, or that the record has changed, and where to look.
func orChanged(ctx context.Context, r *inspect.Ruling, seen store.Seen, err error) error {
	err = r.OrChanged(ctx, seen, err)
	_, changed := errors.AsType[*inspect.Changed](err)
	switch {
	case changed:
		return fmt.Errorf("%w Look again: idem why %s", err, r.Info.Record)
	case r.Info.State == store.Corrupt:
		return fmt.Errorf("%w: see idem why", err)
	}
	return err
}

// maybe returns err, and what to do if the store may have made the decision without a reply.
func (v *verdict) maybe(word string, r *inspect.Ruling, err error) error {
	if v.dryRun || !isAway(err) {
		return err
	}
	return fmt.Errorf("%w: %s of %s by %s (%s) may have been recorded all the same. Repeat the command, which does no harm, or look: idem why %s",
		err, word, r.Info.Record, v.Actor, v.Reason, r.Info.Record)
}

// keepAnswer is how long an answer is kept unless --ttl says otherwise. It is longer than the TTL of most
// routes: an answer that ends too early lets the request run again.
const keepAnswer = 30 * 24 * time.Hour

func ttlFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("ttl", keepAnswer, "how long retries get the answer of final: not below the TTL of the route")
}
