package txtest

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/store/storetest"
)

// What the proofs of this package use as a store is one.
func TestTxStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		New: func(testing.TB) (idempotency.Store, func(time.Duration)) {
			s := guardtest.NewTxStore()
			for _, op := range append([]string{"step"}, guardtest.StoreOps...) {
				s.On(op, guardtest.Always(early)) // a wire would not ask
			}
			return s, time.Sleep
		},
		Transactions: func(_ testing.TB, s idempotency.Store) storetest.Transactions {
			return transactions{s.(*guardtest.TxStore)}
		},
		Bubble: synctest.Test,
	})
}

// early refuses a call whose caller is gone.
func early(ctx context.Context, proceed func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return proceed()
}

type transactions struct{ *guardtest.TxStore }

func (s transactions) Exclusive() bool { return false }

func (s transactions) Has(_ context.Context, row string) (bool, error) {
	return slices.Contains(s.Rows(), row), nil
}

func (s transactions) Begin(_ context.Context, key string, o store.Owner) (storetest.Tx, error) {
	return runTx{s.BeginFor(key, o)}, nil
}

func (s transactions) StepIn(
	ctx context.Context, r store.StepRecord, step func(context.Context, func(string) error) ([]byte, error),
) error {
	return s.TryStep(ctx, r, func(ctx context.Context, tx *guardtest.Tx) ([]byte, error) { return step(ctx, tx.Insert) })
}

type runTx struct{ *guardtest.Tx }

func (tx runTx) Insert(_ context.Context, row string) error { return tx.Tx.Insert(row) }
func (tx runTx) Ready(context.Context) error                { return tx.Commit() }

func (tx runTx) GiveUp(context.Context) error {
	tx.Tx.GiveUp()
	return nil
}

func (tx runTx) Spoil(context.Context) error {
	tx.Tx.Spoil()
	return nil
}
