package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/store"
)

// order is that in which they are told.
var order = []string{"final", "not-executed", "resume"}

// A decision is what one of them would do, or has done.
type decision struct {
	Type     string  `json:"type"`
	Record   string  `json:"record"`
	Decision string  `json:"decision" jsonschema:"final, not-executed, resume or forget"`
	Allowed  bool    `json:"allowed"`
	DryRun   bool    `json:"dry_run" jsonschema:"nothing was changed"`
	Says     string  `json:"says" jsonschema:"what it does, or why it is refused"`
	Answer   *answer `json:"answer,omitempty" jsonschema:"what final records, or would record"`
	Seen     string  `json:"seen" jsonschema:"what was decided about"`
	Actor    string  `json:"actor,omitempty"`
	Reason   string  `json:"reason,omitempty"`
}

// A refusal says for people why a decision is refused.
type refusal struct {
	says string
	err  error
}

func (r *refusal) Error() string { return r.says }
func (r *refusal) Unwrap() error { return r.err }

// A ruling asks the library what it makes of a decision.
type ruling struct {
	guard *idempotency.Guard // on a store that nobody writes to, unless it is decided
	info  idempotency.RecordInfo
	ttl   time.Duration
	// sealed says that the route has a sealer, whose keys only the service has.
	sealed bool
}

// lookInto looks at a record, and at what may be decided about it.
func lookInto(ctx context.Context, s *source, name string, ttl time.Duration) (*ruling, error) {
	key, err := named(name)
	if err != nil {
		return nil, err
	}
	r := &ruling{ttl: ttl}
	if r.guard, err = guard(dryStore{s.records}, idempotency.WithTTL(ttl)); err != nil {
		return nil, usage("%w", err)
	}
	if r.info, err = look(ctx, r.guard, key); err != nil || r.info.State != store.Held {
		return r, err
	}
	rec, err := s.Get(ctx, r.info.Record)
	_, hidden := r.of(ctx, "resume", r.info.Seen(), idempotency.Resolution{NotDone: r.info.InDoubt})
	r.sealed = len(rec.SealedKey) > 0 || unreadable(hidden)
	return r, err
}

func unreadable(err error) bool {
	return errors.Is(err, idempotency.ErrUnreadableHere) || errors.Is(err, idempotency.ErrCorrupt)
}

// of returns what a resolution of the record does, or why it is refused.
func (r *ruling) of(ctx context.Context, word string, seen store.Seen, res idempotency.Resolution) (says string, refused error) {
	res.Outcome = words[word]
	if word == "final" && r.sealed {
		return "", errors.New("the route seals what it records, and could not read this answer: decide by Guard.Resolve in the service, which has the keys")
	}
	err := r.guard.Resolve(ctx, idempotency.Key{Record: r.info.Record}, seen, res)
	switch {
	case err == nil:
		return r.does(word, res), nil
	case errors.Is(err, idempotency.ErrStepsRecorded):
		return "", &refusal{fmt.Sprintf("step %s has a recorded result, so it has happened; resume goes on after it", quoted(r.info.Steps)), err}
	case errors.Is(err, idempotency.ErrUncertain):
		return "", &refusal{fmt.Sprintf("step %s was begun at most once and may have happened. If it has not, and cannot any more, name it with --not-done. "+
			"If it has, do the rest by hand, then final", quoted(r.left(res))), err}
	case errors.Is(err, store.ErrChanged):
		return "", &refusal{fmt.Sprintf("the record is %s, and only what is held can be decided", stateOf(r.info)), err}
	case r.info.State == store.Corrupt:
		return "", &refusal{"the record cannot be read, so that it can only be forgotten: see idem why", err}
	case unreadable(err):
		return "", &refusal{"a step cannot be read here, and only the service can decide, by Guard.Resolve: its route seals steps, or it is another version", err}
	}
	return "", err
}

// left are the steps in doubt that a resolution says nothing about.
func (r *ruling) left(res idempotency.Resolution) []string {
	return slices.DeleteFunc(slices.Clone(r.info.InDoubt), func(name string) bool { return slices.Contains(res.NotDone, name) })
}

// does says what a decision does that is not refused.
func (r *ruling) does(word string, res idempotency.Resolution) string {
	steps, doubt := quoted(r.info.Steps), quoted(r.info.InDoubt)
	says := fmt.Sprintf("The next request with this key runs as attempt %d", r.info.Attempt+1)
	switch {
	case word == "final" && doubt != "":
		return fmt.Sprintf("%s: %s is left as it is, done or not, and steps that have not run never will.", r.answers(), doubt)
	case word == "final" && steps != "":
		return fmt.Sprintf("%s: %s is done, and steps that have not run never will.", r.answers(), steps)
	case word == "final":
		return r.answers() + "."
	case word == "not-executed":
		says += ", from the beginning. Right only if nothing has happened, and nothing that was sent can still arrive."
		if doubt != "" {
			says += fmt.Sprintf(" This says that %s has not happened, either.", doubt)
		}
	default:
		if says += "."; steps != "" {
			says += fmt.Sprintf(" It takes the recorded result of %s, and makes the other steps.", steps)
		}
		if len(res.NotDone) > 0 {
			says += fmt.Sprintf(" It begins %s anew: be sure that it has not happened.", quoted(res.NotDone))
		}
		says += " Right if what is repeated does no harm, as with a derived key."
	}
	return says + " Nothing runs until a client sends it. If the lost run comes back before that, its answer counts."
}

func (r *ruling) answers() string {
	return fmt.Sprintf("Every retry gets the answer that you give, for %s. Nothing runs any more", span(r.ttl))
}
