package idempotency

import (
	"context"
	"errors"
	"example.com/idempotency/event"
	"example.com/idempotency/store"
	"fmt"
	"time"
)

// This file is about steps whose effect and record one transaction commits.

// StepIn is [Step] for an effect in the database of a [store.TxStore]: one commit makes the effect and
// the record of the step durable, or neither. It is for packages that implement such a store;
// programs call their functions. The guard needs no [WithTransaction].
//
// transact begins a transaction and calls work, which runs fn and returns the value to save, as
// [store.StepStore.SaveStep] would get it. transact saves it in the transaction, if the owner holds the
// claim, and commits. If work returns an error, transact rolls back and returns that error. It may
// repeat all that after a conflict. Its own errors are those of [store.Transaction.Complete], and
// [store.ErrCommittedAlone] if fn has ended the transaction, also if fn has failed then. What TxStore promises about the transaction of an owner holds for this one too.
//
// An error of fn is returned, and recorded if it is marked with [Permanent]. After any error but
// [ErrCommitUnknown] the transaction is rolled back, so the step counts as not begun. After that
// one the next attempt knows: it finds the step recorded, or runs it. But if the error is
// [store.ErrCommittedAlone], too, nobody will ever know, and the key is held as after [ErrUncertain].
func StepIn[T any](
	ctx context.Context, s Store, name string,
	transact func(ctx context.Context, r store.StepRecord, work func(ctx context.Context) ([]byte, error)) error,
	fn func(ctx context.Context) (T, error), codec ...CodecOption,
) (T, error) {
	op, ok := FromContext(ctx)
	if !ok {
		return unrecordedStepIn(unrecordedStep(ctx, name), transact, fn)
	}
	set := stepSettings{codec: jsonCodec{}}
	for _, o := range codec {
		o.applyStep(&set)
	}
	report := stepReport{op: op, name: name, start: time.Now(), result: event.StepNotBegun}
	defer report.send()
	if !sameStore(op.lease.core.store, s) {
		var none T
		report.err = fmt.Errorf("step %q: %w", name, ErrOtherStore)
		return none, report.err
	}
	value, found, err := findStep[T](ctx, op, set, &report)
	if !found && err == nil {
		t := transactedStep[T]{op: op, codec: set.codec, fn: fn, report: &report}
		value, err = t.run(ctx, transact)
	}
	report.err = err
	return value, err
}

// unrecordedStepIn runs the function in a transaction that records nothing.
func unrecordedStepIn[T any](
	ctx context.Context, transact func(context.Context, store.StepRecord, func(context.Context) ([]byte, error)) error,
	fn func(ctx context.Context) (T, error),
) (value T, err error) {
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

func (t *transactedStep[T]) run(ctx context.Context, transact func(context.Context, store.StepRecord, func(context.Context) ([]byte, error)) error) (T, error) {
	var none T
	op, name := t.op, t.report.name
	if err := op.mayBegin(name, false); err != nil {
		return none, err
	}
	t.resumed, t.failed = op.resumes(), true
	op.effects.Add(1) // one that may be committed
	t.report.result = event.StepNotRecorded
	err := transact(ctx, store.StepRecord{Key: op.lease.key, Owner: op.lease.claim.Owner, Name: name}, t.work)
	var rolledBack *store.RolledBackError
	switch {
	case err == nil:
		t.report.result = event.StepRecorded
		return decodeStep[T](t.codec, name, t.stored[1:])
	case errors.Is(err, store.ErrCommittedAlone): // perhaps with an error of the function
		op.uncertain.Store(true)
		return none, fmt.Errorf("step %q: %w: %w", name, ErrCommitUnknown, err)
	case t.failed && IsPermanent(err):
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
	sealed, err := op.lease.set.sealStep(t.stored, op.lease.key, op.lease.claim.Fingerprint, name)
	t.failed = err != nil
	return sealed, err
}

// recordError records a permanent error, whose transaction was rolled back.
func (t *transactedStep[T]) recordError(permanent error) error {
	stored, err := encodeStep(t.codec, nil, permanent)
	if err == nil {
		err = t.op.lease.recordStep(t.report.name, stored)
	}
	if err != nil {
		return &NotRecordedError{t.report.name, errors.Join(err, permanent)}
	}
	t.report.result = event.StepRecorded
	return permanent
}
