package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// StepTx is [idempotency.Step] for an effect in the database of the store: one commit makes the rows
// of f and the record of the step durable, or neither. Unlike [Store.InTx] it commits at once, so a
// run may take several such steps, and the guard needs no [idempotency.WithTransaction]. A later
// attempt of the run gets the value and does not run f again.
//
// f must not commit or roll back, must not keep the transaction, and must close the rows that it
// reads. If it returns an error, the
// transaction is rolled back. When another transaction is in the way (40001, 40P01), f runs again,
// up to ten times. Outside of a run the transaction records nothing.
//
// Errors are those of f and of [adapter.StepIn]. While a transaction of the run at REPEATABLE
// READ or SERIALIZABLE is open, StepTx returns an error: take the step before it.
func StepTx[T any](
	ctx context.Context, s *Store, name string, opts pgx.TxOptions,
	f func(ctx context.Context, tx pgx.Tx) (T, error), codec ...idempotency.TaskOption,
) (T, error) {
	var tx pgx.Tx // that of the current try
	transact := func(ctx context.Context, r store.StepRecord, work func(context.Context) ([]byte, error)) error {
		return again(ctx, func() error {
			return s.stepIn(ctx, opts, r, func(ctx context.Context, of pgx.Tx) ([]byte, error) {
				tx = of
				return work(ctx)
			})
		})
	}
	return adapter.StepIn(ctx, s, name, transact, func(ctx context.Context) (T, error) { return f(ctx, tx) }, codec...)
}

// stepIn runs one try of a step.
func (s *Store) stepIn(
	ctx context.Context, opts pgx.TxOptions, r store.StepRecord, work func(context.Context, pgx.Tx) ([]byte, error),
) error {
	if r == (store.StepRecord{}) {
		return pgx.BeginTxFunc(ctx, s.business, opts, func(tx pgx.Tx) error {
			_, err := work(ctx, tx)
			return err
		})
	}
	if s.locked.Has(r.Key, r.Owner) {
		return &store.RolledBackError{Err: errLocked}
	}
	if err := s.needRecord(ctx, r.Key, r.Owner); err != nil {
		return &store.RolledBackError{Retry: true, Err: err}
	}
	t, err := s.begin(ctx, r.Key, r.Owner, opts)
	switch {
	case errors.Is(err, idempotency.ErrLeaseLost):
		return store.ErrNotOwner
	case err != nil:
		return &store.RolledBackError{Retry: true, Err: err}
	}
	defer func() { _ = t.Rollback(context.WithoutCancel(ctx)) }() // does nothing after the commit
	value, err := work(ctx, &handlerTx{t.tx, t})
	if err != nil {
		if alone := t.Rollback(context.WithoutCancel(ctx)); alone != nil {
			return fmt.Errorf("%w: %w", alone, err)
		}
		return err
	}
	if len(value) > sqlrecord.MaxValue {
		return &store.RolledBackError{Err: store.ErrTooLarge}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.state = store.TxReady
	}
	return t.commit(ctx, s.sql.fencedStep, []any{r.Key, r.Owner[:], sqlrecord.Step(r.Name, value), s.fence.timeline()})
}
