package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/idempotency/event"
	"example.com/idempotency/store"
)

// A transact begins a transaction, calls work in it, saves what that returns, and commits.
type transact = func(ctx context.Context, r store.StepRecord, work func(ctx context.Context) ([]byte, error)) error

// StepIn is [Step] for an effect in the database of the store st: one commit makes the effect and the
// record of the step durable, or neither.
func StepIn[T any](ctx context.Context, st store.Store, name string, transact transact, fn func(ctx context.Context) (T, error), task TaskSettings) (T, error) {
	if err := task.checkStep(true); err != nil {
		var none T
		return none, err
	}
	op, ok := FromContext(ctx)
	if !ok {
		return unrecordedStepIn(unrecordedStep(ctx, name), transact, fn)
	}
	r := stepReport{lease: op.lease, name: name, start: time.Now(), result: event.StepNotBegun}
	defer r.send()
	if !sameStore(op.lease.core.store, st) {
		var none T
		r.err = fmt.Errorf("step %q: %w", name, ErrOtherStore)
		return none, r.err
	}
	t := transactedStep[T]{op: op, codec: orJSON(task.Codec), fn: fn, report: &r}
	value, found, err := findStep[T](ctx, op, t.codec, &r)
	if !found && err == nil {
		value, err = t.run(ctx, transact)
	}
	r.err = err
	return value, err
}

// unrecordedStepIn runs the function in a transaction that records nothing.
func unrecordedStepIn[T any](ctx context.Context, transact transact, fn func(ctx context.Context) (T, error)) (value T, err error) {
	err = transact(ctx, store.StepRecord{}, func(ctx context.Context) ([]byte, error) {
		var err error
		value, err = fn(ctx)
		return nil, err
	})
	return value, err
}

// A transactedStep is a step that begins in a transaction.
type transactedStep[T any] struct {
	op     *Operation
	codec  Codec
	fn     func(ctx context.Context) (T, error)
	report *stepReport

	resumed bool
	stored  []byte // the value of the last try
	failed  bool   // the last try has returned an error, or there was none
}

func (t *transactedStep[T]) run(ctx context.Context, transact transact) (T, error) {
	defer t.op.progress.leave()
	var none T
	op, name := t.op, t.report.name
	if err := op.mayBegin(name, false); err != nil {
		return none, err
	}
	t.resumed, t.failed = op.resumes(), true
	t.report.result = event.StepNotRecorded
	err := transact(ctx, store.StepRecord{Key: op.lease.Name, Owner: op.lease.claim.Owner, Name: name}, t.work)
	op.progress.charge(name, t.stored) // it may have been committed, whatever the error
	var rolledBack *store.RolledBackError
	switch {
	case err == nil:
		t.report.result = event.StepRecorded
		return decodeStep[T](t.codec, name, t.stored[1:])
	case errors.Is(err, store.ErrCommittedAlone): // perhaps with an error of the function
		op.uncertain.Store(true)
		return none, fmt.Errorf("step %q: %w: %w", name, ErrCommitUnknown, err)
	case t.failed && errors.Is(err, ErrPermanent):
		return none, t.recordError(err)
	case errors.Is(err, store.ErrNotOwner):
		op.lease.lose(err)
		err = fmt.Errorf("step %q: %w", name, ErrLeaseLost)
	case !t.failed && !errors.As(err, &rolledBack):
		return none, fmt.Errorf("step %q: %w: %w", name, ErrCommitUnknown, err)
	}
	op.effects.Add(-1)
	t.report.result = event.StepNotDone
	return none, err
}

// work runs the function in the transaction and encodes its value.
func (t *transactedStep[T]) work(ctx context.Context) ([]byte, error) {
	op, name := t.op, t.report.name
	t.failed = true
	value, err := t.fn(&stepContext{Context: ctx, op: op, intent: op.intent(), name: name, resumed: t.resumed})
	if err != nil {
		return nil, err
	}
	if t.stored, err = encodeStep(t.codec, value, nil); err != nil {
		return nil, err
	}
	sealed, err := op.lease.rules.Seals.Step(t.stored, op.lease.Name, op.lease.claim.Fingerprint, name)
	t.failed = err != nil
	return sealed, err
}

// recordError records a permanent error, whose transaction was rolled back.
func (t *transactedStep[T]) recordError(permanent error) error {
	stored, err := encodeStep(t.codec, nil, permanent)
	if err == nil {
		err = t.op.recordStep(t.report.name, stored, false)
	}
	if err != nil {
		return fmt.Errorf("step %q: %w: %w", t.report.name, ErrNotRecorded, errors.Join(err, permanent))
	}
	t.report.result = event.StepRecorded
	return permanent
}
