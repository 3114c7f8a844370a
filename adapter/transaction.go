package adapter

import (
	"context"

	"example.com/idempotency"
	"example.com/idempotency/internal/engine"
	"example.com/idempotency/store"
)

// This file is for packages that implement a store.TxStore. Programs call their functions.

// Join makes a transaction part of the run that op stands for, so that the answer of the run is recorded in
// it. st is the [store.TxStore] that calls it. begin is called once, unless Join is refused, and begins the
// transaction for a record and its owner.
//
// Errors: [idempotency.ErrNoTransaction], [idempotency.ErrOtherStore], [idempotency.ErrJoined],
// [idempotency.ErrStepMisuse] while a step of the run, or a run inside of it, is in hand, [idempotency.ErrAnswerSent] and [idempotency.ErrRunEnded]; and those of begin, after which another Join
// may be tried. A transaction that was given up may be followed by another. It may be called from several
// goroutines.
func Join(
	ctx context.Context, op *idempotency.Operation, st idempotency.Store,
	begin func(key string, o store.Owner) (store.Transaction, error),
) error {
	return (*engine.Operation)(op).Join(ctx, st, begin)
}

// StepIn is [idempotency.Step] for an effect in the database of a [store.TxStore]: one commit makes the
// effect and the record of the step durable, or neither. The guard needs no idempotency.WithTransaction.
//
// transact begins a transaction and calls work, which runs fn and returns the value to save, as
// [store.StepStore.SaveStep] would get it. transact saves it in the transaction, if the owner holds the
// claim, and commits. If work returns an error, transact rolls back and returns that error. It may
// repeat all that after a conflict. Its own errors are those of [store.Transaction.Complete], and
// [store.ErrCommittedAlone] if fn has ended the transaction, also if fn has failed then. What TxStore
// promises about the transaction of an owner holds for this one too.
//
// An error of fn is returned, and recorded if it is marked with idempotency.Permanent. After any error but
// [idempotency.ErrCommitUnknown] the transaction is rolled back, so the step counts as not begun. After that
// one the next attempt knows: it finds the step recorded, or runs it. But if the error is
// [store.ErrCommittedAlone], too, nobody will ever know, and the key is held as after
// [idempotency.ErrUncertain].
func StepIn[T any](
	ctx context.Context, st idempotency.Store, name string,
	transact func(ctx context.Context, r store.StepRecord, work func(ctx context.Context) ([]byte, error)) error,
	fn func(ctx context.Context) (T, error), opts ...idempotency.TaskOption,
) (T, error) {
	return engine.StepIn(ctx, st, name, transact, fn, engine.TaskSettingsOf(opts))
}
