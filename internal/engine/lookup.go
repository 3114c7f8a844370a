package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/internal/answer"
	"example.com/idempotency/internal/engine/intent"
	"example.com/idempotency/internal/engine/note"
	"example.com/idempotency/internal/engine/report"
	"example.com/idempotency/internal/engine/seal"
	"example.com/idempotency/internal/history"
	"example.com/idempotency/internal/rules"
	"example.com/idempotency/store"
)

// Found says what was found of a key, of which rec is the record.
func (e *Engine) Found(k intent.Key, rec store.Record) Found {
	return Found{Key: k, Record: rec, Steps: e.stepsOf(k, rec), Intent: e.intentOf(k, &rec)}
}

// intentOf returns that of the last run of a record, and the zero Intent if it cannot be told.
func (e *Engine) intentOf(k intent.Key, rec *store.Record) (i intent.Intent) {
	if rules.Derived.Of(e.keying(k, rec)) {
		i = e.rules.Derivation.Of(k, rec.Fingerprint)
	}
	return i
}

// keying are the facts about what the runs of a record have derived, by the rules of e. Each of them may have had an effect.
func (e *Engine) keying(k intent.Key, rec *store.Record) rules.Keying {
	f, derived := rules.If(k.Record == "", rules.KeyKnown, rules.OnlyName), rules.DerivedUntold
	for stored := range history.All(rec.Notes) {
		switch n := note.Read(stored); {
		case n.Early || n.Started.IsZero():
		case n.Derivation != e.rules.Derivation.Digest:
			return f | rules.DerivedOtherwise
		default:
			derived = rules.DerivedAsNow
		}
	}
	return f | derived
}

// stepsOf returns the steps of a record, without those that are known not to have happened.
func (e *Engine) stepsOf(k intent.Key, rec store.Record) Steps {
	s := Steps{marks: make(map[string][]byte)}
	for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
		value, err := e.rules.Seals.OpenStep(rec.Steps[name], k.Name(), rec.Fingerprint, name)
		switch {
		case err != nil:
			s.Unread, s.hidden = append(s.Unread, name), err
		case value[0] == seal.StepStarted:
			s.InDoubt, s.marks[name] = append(s.InDoubt, name), rec.Steps[name]
		case value[0] != seal.StepUndone:
			s.Recorded = append(s.Recorded, name)
		}
	}
	return s
}

// Lookup returns what is known of a key. It changes nothing.
func (e *Engine) Lookup(ctx context.Context, k intent.Key) (Found, error) {
	_, rec, err := e.get(ctx, k)
	if err != nil {
		return Found{Key: k}, err
	}
	k = e.identify(ctx, k, rec)
	a := e.access(ctx, k, rec.Label)
	e.core.reportHoldEnding(a.Name, &rec, a.Observe)
	return e.Found(k, rec), nil
}

// TTL is how long an answer is recorded.
func (e *Engine) TTL() time.Duration { return e.rules.TTL }

// Answer returns the recorded answer of a key to somebody, and reports that. Errors: those of the store;
// store.ErrNotFound also if there is a record, and no answer.
func (e *Engine) Answer(ctx context.Context, k intent.Key, actor string) (answer.Answer, error) {
	_, rec, err := e.get(ctx, k)
	if err == nil {
		_, rec, err = e.read(ctx, k, storeTimeout+sizeTime(rec.Size), store.Inspector.GetAnswer)
	}
	switch {
	case err != nil:
		return answer.Answer{}, err
	case rec.State != store.Completed:
		return answer.Answer{}, store.ErrNotFound
	}
	a, err := e.rules.Seals.OpenAnswer(rec.Answer, k.Name(), rec.Fingerprint, nil)
	if err == nil {
		k = e.identify(ctx, k, rec)
		e.access(ctx, k, rec.Label).Observe(event.Event{
			Kind: event.AnswerRead, OperationID: e.intentOf(k, &rec).ID(), Attempt: rec.Attempt, Actor: actor,
			Status: a.Status, Size: int64(len(a.Body)), Age: rec.Age,
		})
	}
	return a, err
}

// access returns what an operator's look at a record, or a decision about it, reports by.
func (e *Engine) access(ctx context.Context, k intent.Key, route string) *Access {
	return &Access{core: e.core, rules: e.rules, ID: k, Name: k.Name(), Client: ctx, Route: route}
}

// identify returns the client's key of a record, if it was found by its name and this guard can
// read the key that was kept beside it. Otherwise it returns k.
func (e *Engine) identify(ctx context.Context, k intent.Key, rec store.Record) intent.Key {
	if k.Record == "" || e.rules.Seals.Sealer == nil || len(rec.SealedKey) == 0 {
		return k
	}
	kept, err := e.rules.Seals.OpenKey(rec.SealedKey, k.Record)
	if err == nil {
		return kept
	}
	if e.core.reports.IsNew(report.Of(event.Corrupt, k.Record, &rec)) {
		e.access(ctx, k, rec.Label).Observe(event.Event{Kind: event.Corrupt, Op: "key", Attempt: rec.Attempt, Err: err})
	}
	return k
}

// inspect returns the store in which an operator looks at a key.
func (e *Engine) inspect(k intent.Key) (store.Inspector, error) {
	inspector, ok := e.core.store.(store.Inspector)
	if !ok {
		return nil, ErrNoInspector
	}
	return inspector, k.CheckFind()
}

// get reads a record without its answer.
func (e *Engine) get(ctx context.Context, k intent.Key) (store.Inspector, store.Record, error) {
	return e.read(ctx, k, storeTimeout, store.Inspector.Get)
}

// read reads a record with one of the methods for that.
func (e *Engine) read(
	ctx context.Context, k intent.Key, timeout time.Duration, method func(store.Inspector, context.Context, string) (store.Record, error),
) (store.Inspector, store.Record, error) {
	inspector, err := e.inspect(k)
	if err != nil {
		return nil, store.Record{}, err
	}
	rec, err := bounded(ctx, e.core, "get", timeout, func(ctx context.Context) (store.Record, error) {
		return method(inspector, ctx, k.Name())
	})
	return inspector, rec, err
}
