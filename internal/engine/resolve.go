package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// Resolve settles a held key by hand. It is one step of the store.
func (e *Engine) Resolve(ctx context.Context, k intent.Key, seen store.Seen, res Resolution) error {
	inspector, rec, err := e.get(ctx, k)
	if err != nil {
		return err
	}
	steps := e.stepsOf(k, rec)
	s := store.Settlement{Undone: steps.marks}
	switch ruling := rules.Decided.Of(res.facts(&steps) | e.keysOf(&rec)); {
	case ruling == rules.RecordAnswer:
		s.Undone = nil
		s.Completion, err = e.resolvedCompletion(ctx, res, k, rec)
	case ruling == rules.RefuseWord:
		err = fmt.Errorf("idempotency: Resolve: %v; give Final with an answer, or Resume or NotExecuted without one", res.Outcome)
	case ruling == rules.RefuseHidden:
		err = steps.hidden
	case ruling != rules.LetRun && (rec.Seen() != seen || rec.State != store.Held): // nobody decides about these steps
		err = store.ErrChanged
	case ruling == rules.RefuseResult:
		err = fmt.Errorf("%w: %q", ErrStepsRecorded, steps.Recorded)
	case ruling == rules.RefuseKeys:
		err = fmt.Errorf("%w: resume would repeat what it did under keys that no other system knows", ErrOtherKeys)
	case ruling == rules.RefuseMark:
		err = fmt.Errorf("%w: one of %q, and NotDone does not name it", ErrUncertain, steps.InDoubt)
	}
	if err != nil {
		return err
	}
	if rehearses(ctx) {
		return wouldResolve(&rec, seen)
	}
	d := decisionOn(&rec, note.NewDecision(res.Outcome, seen, res.Actor, res.Reason))
	s.Note = d.AppendTo(nil)
	timeout := storeTimeout
	if s.Completion != nil {
		timeout += sizeTime(int64(len(s.Completion.Answer)))
	}
	_, err = bounded(ctx, e.core, "resolve", timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Resolve(ctx, k.Name(), seen, s)
	})
	if err == nil {
		k = e.identify(ctx, k, rec)
		e.reportDecision(ctx, k, res.Decision, d.Name(), event.Event{
			Kind: event.Resolved, OperationID: e.intentOf(k, &rec).ID(), Route: rec.Label,
			Attempt: seen.Attempt, Outcome: res.Outcome, Age: rec.Age, Trace: note.Last(rec.Notes).Trace,
			Steps: steps.Recorded, InDoubt: steps.mayHave(),
		})
	}
	return err
}

// decisionOn returns a decision, or the one that is recorded already if that says the same: a store tells a call that
// is repeated by its bytes.
func decisionOn(rec *store.Record, d note.Decision) note.Decision {
	if last := note.ReadDecision(store.LastDecision(rec.Notes)); rec.State != store.Held && d.Says(last) {
		return last
	}
	return d
}

type idTold struct{}

// TellID returns a context in which Resolve and Forget tell the ID of the decision that they have made.
func TellID(ctx context.Context, id *string) context.Context {
	return context.WithValue(ctx, idTold{}, id)
}

// reportDecision reports what was decided by hand, under the ID of the decision.
func (e *Engine) reportDecision(ctx context.Context, k intent.Key, d Decision, id string, ev event.Event) {
	if told, ok := ctx.Value(idTold{}).(*string); ok {
		*told = id
	}
	ev.Decision, ev.Actor, ev.Reason = id, d.Actor, d.Reason
	e.access(ctx, k, e.rules.Route).Observe(ev)
}

// facts are the facts about a decision on a key with these steps.
func (res *Resolution) facts(steps *Steps) rules.Deciding {
	denied := func(name string) bool { return slices.Contains(res.NotDone, name) }
	stands := func(name string) bool { return !denied(name) }
	f := rules.Says(res.Outcome) |
		rules.If(res.HasAnswer, rules.GivesAnswer, rules.GivesNoAnswer) |
		rules.If(len(steps.Recorded) > 0, rules.HasResults, rules.NoResult) |
		rules.If(slices.ContainsFunc(steps.Recorded, denied), rules.DeniesResult, rules.DeniesNone)
	if steps.hidden != nil {
		return f | rules.StepHidden
	}
	return f | rules.If(slices.ContainsFunc(steps.InDoubt, stands), rules.MarkStands, rules.NoMark)
}

// keysOf is the fact about what the route of a record derives now. A guard knows the rules of routes with a label in its program, and
// its own. Of another route it takes its own for that one's, unless it derives nothing: it may be one of another program.
func (e *Engine) keysOf(rec *store.Record) rules.Deciding {
	route := e.core.labelled.of(rec.Label)
	if route == nil && (rec.Label == e.rules.Route || e.rules.Derivation.Digest != [4]byte{}) {
		route = e.rules
	}
	if route != nil && (&Engine{e.core, route}).keying(intent.Key{}, rec)&rules.DerivedOtherwise != 0 {
		return rules.KeysChanged
	}
	return rules.KeysStay
}

// resolvedCompletion is what a Final resolution records.
func (e *Engine) resolvedCompletion(ctx context.Context, res Resolution, k intent.Key, rec store.Record) (*store.Completion, error) {
	a, err := res.Answer(rec.Fingerprint)
	if err != nil {
		return nil, err
	}
	sealed, err := e.sealAgain(ctx, a, k, rec)
	if err != nil {
		return nil, err
	}
	return &store.Completion{Answer: sealed, Status: toldStatus(a, rec.Fingerprint), TTL: e.rules.TTL}, nil
}

// sealAgain returns the stored form of an answer, and the one that is recorded already if
// it is that of the same answer: a store tells a call that is repeated by its bytes, and
// a sealer makes others each time.
func (e *Engine) sealAgain(ctx context.Context, a *answer.Answer, k intent.Key, rec store.Record) ([]byte, error) {
	key := k.Name()
	if rec.State == store.Completed && e.rules.Seals.Sealer != nil {
		_, rec, err := e.read(ctx, k, storeTimeout+sizeTime(rec.Size), store.Inspector.GetAnswer)
		if err != nil {
			return nil, err
		}
		recorded, err := e.rules.Seals.OpenAnswer(rec.Answer, key, rec.Fingerprint, nil)
		if err == nil && bytes.Equal(recorded.Encode(key, rec.Fingerprint), a.Encode(key, rec.Fingerprint)) {
			return rec.Answer, nil
		}
	}
	return e.rules.Seals.Answer(a, key, rec.Fingerprint)
}
