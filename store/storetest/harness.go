package storetest

import (
	"context"
	"testing"
	"time"

	"example.com/idempotency/store"
)

// A Harness tells [Run] how to test one kind of store.
type Harness struct {
	// New returns a fresh, empty store and a function that lets time pass on the clock
	// of that store. Run calls it once for each case, inside the bubble if there is one.
	// If something has to be closed, New registers that with t.Cleanup. Required.
	New func(t testing.TB) (st store.Store, advance func(time.Duration))

	// Transactions returns the transactions of a store that New has returned. Run calls it once for
	// each case. Required if the store is a [store.TxStore].
	Transactions func(t testing.TB, st store.Store) Transactions

	// Bubble, if set, runs the body of each subtest. [testing/synctest.Test] fits.
	Bubble func(t *testing.T, f func(t *testing.T))
}

// Transactions let [Run] join transactions of one store that is a [store.TxStore]. The
// functions of the store's package do the same for programs, inside a run.
type Transactions interface {
	// Begin begins a transaction, as the store does for adapter.Join. It may refuse
	// an owner that does not hold the claim.
	Begin(ctx context.Context, key string, o store.Owner) (Tx, error)
	// StepIn makes one try of a step, as the store does for adapter.StepIn. The step inserts
	// rows and returns the value to save, or an error. A store without such steps returns an error
	// that wraps [errors.ErrUnsupported].
	StepIn(ctx context.Context, r store.StepRecord, step func(ctx context.Context, insert func(row string) error) ([]byte, error)) error
	// Has reports whether a row is there for everybody.
	Has(ctx context.Context, row string) (bool, error)
	// Exclusive reports whether nobody else can write while a transaction is open, and no time can
	// pass on the clock of the store.
	Exclusive() bool
}

// A Tx is a transaction of a run, as the guard sees it and as the handler does.
type Tx interface {
	store.Transaction
	// Insert inserts a row into a table of the program.
	Insert(ctx context.Context, row string) error
	// Ready says that the handler wants the transaction to be committed.
	Ready(ctx context.Context) error
	// GiveUp rolls it back, as a handler does whose function has failed.
	GiveUp(ctx context.Context) error
	// Spoil makes the database refuse the commit, by a deferred constraint for example. If nothing
	// can do that, it returns an error that wraps [errors.ErrUnsupported].
	Spoil(ctx context.Context) error
}
