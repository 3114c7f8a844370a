package engine

import (
	"bytes"
	"context"
	"fmt"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/engine/seal"
	"example.com/idempotency/store"
)

// Resolve settles a held key by hand. It is one step of the store.
func (e *Engine) Resolve(ctx context.Context, k intent.Key, seen store.Seen, res Resolution) error {
	if res.Outcome != event.Final && res.Outcome != event.NotExecuted {
		return fmt.Errorf("idempotency: Resolve: outcome %v settles nothing; give Final or NotExecuted", res.Outcome)
	}
	inspector, rec, err := e.get(ctx, k)
	if err != nil {
		return err
	}
	var s store.Settlement
	if res.Outcome == event.Final {
		s.Completion, err = e.resolvedCompletion(ctx, res, k, rec)
	} else {
		s.Undone, err = e.begunSteps(k, rec)
	}
	if err != nil {
		return err
	}
	timeout := storeTimeout
	if s.Completion != nil {
		timeout += sizeTime(int64(len(s.Completion.Answer)))
	}
	_, err = bounded(ctx, e.core, timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, inspector.Resolve(ctx, k.Name(), seen, s)
	})
	if err == nil {
		k = e.identify(ctx, k, rec)
		e.reportDecision(ctx, k, res.Decision, event.Event{
			Kind: event.Resolved, OperationID: e.rules.Derivation.ID(k, rec.Fingerprint), Route: rec.Label,
			Attempt: seen.Attempt, Outcome: res.Outcome, Age: rec.Age, Trace: note.Last(rec.Notes).Trace,
		})
	}
	return err
}

// reportDecision reports what was decided by hand.
func (e *Engine) reportDecision(ctx context.Context, k intent.Key, d Decision, ev event.Event) {
	ev.Actor, ev.Reason = d.Actor, d.Reason
	e.access(ctx, k, e.rules.Route).Observe(ev)
}

// begunSteps are the steps that have a mark and no result: the marks would hold the key
// again. A mark that cannot be read could not be told from a result.
func (e *Engine) begunSteps(k intent.Key, rec store.Record) (map[string][]byte, error) {
	var begun map[string][]byte
	for name, stored := range rec.Steps {
		value, err := e.rules.Seals.OpenStep(stored, k.Name(), rec.Fingerprint, name)
		if err != nil {
			return nil, err
		}
		if value[0] != seal.StepStarted {
			continue
		}
		if begun == nil {
			begun = make(map[string][]byte)
		}
		begun[name] = stored
	}
	return begun, nil
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
