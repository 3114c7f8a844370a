package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/idempotency/store"
)

func transactionCases() []testCase {
	return []testCase{
		{"Transaction/commits its rows with the answer", txCommit},
		{"Transaction/wakes those who wait", txWatch},
		{"Transaction/rolls back without a record", txRollback},
		{"Transaction/that was given up is followed by another", txGivenUp},
		{"Transaction/of an owner that was overtaken is not committed", txOvertaken},
		{"Transaction/that is open when another takes over is not committed", txTakeover},
		{"Transaction/after Release is not committed", txReleased},
		{"Transaction/after Hold is not committed", txHeld},
		{"Transaction/is committed or released", txRace},
		{"Transaction/whose commit is refused is rolled back", txSpoilt},
		{"Transaction/a cancelled commit is looked up", txCancelled},
		{"Transaction/a step is recorded with its rows", txStep},
		{"Transaction/a step that fails leaves nothing", txStepFails},
		{"Transaction/a step of an owner that was overtaken leaves nothing", txStepOvertaken},
		{"Transaction/a step outside of a run leaves its rows", txStepAlone},
	}
}

// tx returns the transactions of the store, or skips the case.
func (e *env) tx() Transactions {
	e.t.Helper()
	if _, ok := e.store.(store.TxStore); !ok {
		e.t.Skip("the store is not an idempotency.TxStore")
	}
	if e.transactions == nil {
		e.t.Fatalf("the store is an idempotency.TxStore: set Harness.Transactions")
	}
	return e.transactions
}

// begin begins a transaction that inserts a row.
func (e *env) begin(o store.Owner, row string) Tx {
	e.t.Helper()
	tx, err := e.tx().Begin(e.ctx, key, o)
	e.ok("Begin", err)
	e.ok("Insert", tx.Insert(e.ctx, row))
	e.inState(tx, store.TxOpen)
	return tx
}

// ready begins a transaction that inserts a row and is to be committed.
func (e *env) ready(o store.Owner, row string) Tx {
	e.t.Helper()
	tx := e.begin(o, row)
	e.ok("Ready", tx.Ready(e.ctx))
	e.inState(tx, store.TxReady)
	return tx
}

func (e *env) inState(tx Tx, want store.TxState) {
	e.t.Helper()
	if got := tx.State(); got != want {
		e.t.Fatalf("the transaction is %v, want %v", got, want)
	}
}

// rows fails the case unless the row is there, or is not.
func (e *env) row(row string, want bool) {
	e.t.Helper()
	got, err := e.tx().Has(e.ctx, row)
	e.ok("Has", err)
	if got != want {
		e.t.Fatalf("row %q: there is %t, want %t", row, got, want)
	}
}

// rolledBack fails the case unless the error says that the transaction was surely not committed.
func (e *env) rolledBack(err error) {
	e.t.Helper()
	if _, ok := errors.AsType[*store.RolledBackError](err); !ok {
		e.t.Fatalf("Transaction.Complete: got error %v, want a RolledBackError", err)
	}
}

func txCommit(e *env) {
	e.tx()
	e.claimed()
	tx := e.ready(alice, "row")
	e.row("row", false)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.ok("Transaction.Complete", tx.Complete(e.ctx, completion("answer")))
	e.row("row", true)
	r := e.claim(key, bob)
	e.answer(r, "answer")
	e.near("TTL", r.TTL, ttl)
}

func txWatch(e *env) {
	e.tx()
	settled, _ := e.watch(key)
	e.claimed()
	e.notMine(e.claim(key, bob, watching), store.Claimed, 1)
	e.ok("Transaction.Complete", e.ready(alice, "row").Complete(e.ctx, completion("answer")))
	e.wakes("Transaction.Complete", settled)
}

// The handler has succeeded, and the guard knows better.
func txRollback(e *env) {
	e.tx()
	e.claimed()
	e.ok("Transaction.Rollback", e.ready(alice, "row").Rollback(e.ctx))
	e.row("row", false)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
}

func txGivenUp(e *env) {
	e.tx()
	e.claimed()
	tx := e.begin(alice, "first")
	e.ok("GiveUp", tx.GiveUp(e.ctx))
	e.inState(tx, store.TxGivenUp)
	e.ok("Transaction.Complete", e.ready(alice, "second").Complete(e.ctx, completion("answer")))
	e.row("first", false)
	e.row("second", true)
	e.answer(e.claim(key, bob), "answer")
}

// A paused run comes back and begins its transaction.
func txOvertaken(e *env) {
	e.tx()
	e.claimed()
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	if tx, err := e.tx().Begin(e.ctx, key, alice); err == nil {
		e.ok("Insert", tx.Insert(e.ctx, "row"))
		e.ok("Ready", tx.Ready(e.ctx))
		e.refused("Transaction.Complete", tx.Complete(e.ctx, completion("answer")), store.ErrNotOwner)
	}
	e.row("row", false)
	e.ok("Complete", e.complete(bob, "answer of bob"))
	e.answer(e.claim(key, carol), "answer of bob")
}

// A run is paused in its transaction.
func txTakeover(e *env) {
	if e.tx().Exclusive() {
		e.t.Skip("no time passes while a transaction is open")
	}
	e.claimed()
	tx := e.ready(alice, "row")
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.refused("Transaction.Complete", tx.Complete(e.ctx, completion("answer")), store.ErrNotOwner)
	e.row("row", false)
	e.notMine(e.claim(key, carol), store.Claimed, 2)
}

// The guard gives the claim back, and the COMMIT is still on its way.
func txReleased(e *env) { e.settledFirst(e.release, store.Released) }

func txHeld(e *env) {
	e.settledFirst(func(o store.Owner) error { return e.store.Hold(e.ctx, key, o) }, store.Held)
}

// settledFirst settles the claim before the transaction is completed: in it, or before it begins
// where that would wait for its end.
func (e *env) settledFirst(settle func(store.Owner) error, state store.State) {
	e.t.Helper()
	exclusive := e.tx().Exclusive()
	e.claimed()
	if exclusive {
		e.ok("settling", settle(alice))
	}
	tx, err := e.tx().Begin(e.ctx, key, alice)
	if err == nil {
		e.ok("Insert", tx.Insert(e.ctx, "row"))
		e.ok("Ready", tx.Ready(e.ctx))
	} else if !exclusive {
		e.t.Fatalf("Begin: unexpected error: %v", err)
	}
	if !exclusive {
		e.ok("settling", settle(alice))
	}
	if err == nil {
		e.refused("Transaction.Complete", tx.Complete(e.ctx, completion("answer")), store.ErrNotOwner)
	}
	e.row("row", false)
	e.notMine(e.claim(key, alice), state, 1)
}

// A commit whose reply is lost is looked up by Release. Whatever comes first, both tell the same
// story. The two also meet in the store.
func txRace(e *env) {
	e.tx()
	for i := range 20 {
		row := fmt.Sprint("row ", i)
		key := keyOf(row)
		e.mine(e.claim(key, alice), 1)
		tx, err := e.tx().Begin(e.ctx, key, alice)
		e.ok("Begin", err)
		e.ok("Insert", tx.Insert(e.ctx, row))
		e.ok("Ready", tx.Ready(e.ctx))
		var committed, released error
		var both sync.WaitGroup
		both.Go(func() {
			time.Sleep(time.Duration(i%4) * 100 * time.Microsecond)
			committed = tx.Complete(e.ctx, completion("answer"))
		})
		both.Go(func() {
			time.Sleep(time.Duration(i%5) * 75 * time.Microsecond)
			released = e.store.Release(e.ctx, key, alice, store.Release{})
		})
		both.Wait()
		e.row(row, committed == nil)
		if committed == nil {
			e.refused("Release", released, store.ErrNotOwner)
			e.answer(e.claim(key, bob), "answer")
			continue
		}
		e.refused("Transaction.Complete", committed, store.ErrNotOwner)
		e.ok("Release", released)
		e.mine(e.claim(key, bob), 2)
	}
}

// The database has refused the commit, so nothing has happened, and the run is over.
func txSpoilt(e *env) {
	e.tx()
	e.claimed()
	tx := e.begin(alice, "row")
	if err := tx.Spoil(e.ctx); errors.Is(err, errors.ErrUnsupported) {
		_ = tx.GiveUp(e.ctx)
		e.t.Skip("nothing spoils a commit of the store")
	} else {
		e.ok("Spoil", err)
	}
	e.ok("Ready", tx.Ready(e.ctx))
	e.rolledBack(tx.Complete(e.ctx, completion("answer")))
	e.row("row", false)
	e.notMine(e.claim(key, bob), store.Claimed, 1)
	e.ok("Release", e.release(alice))
	e.mine(e.claim(key, bob), 2)
}

// Whatever a commit says that its caller did not wait for, it is true, and Release tells the rest.
func txCancelled(e *env) {
	e.tx()
	e.claimed()
	tx := e.ready(alice, "row")
	err := tx.Complete(e.cancelled(), completion("answer"))
	if _, ok := errors.AsType[*store.RolledBackError](err); ok || errors.Is(err, store.ErrNotOwner) {
		e.row("row", false)
	}
	released := e.release(alice)
	if err == nil || released != nil {
		e.refused("Release", released, store.ErrNotOwner)
		e.row("row", true)
		e.answer(e.claim(key, bob), "answer")
		return
	}
	e.row("row", false)
	e.mine(e.claim(key, bob), 2)
}

// stepIn makes a step of the key as the owner, which inserts a row.
func (e *env) stepIn(r store.StepRecord, row string, result error) error {
	e.t.Helper()
	e.stepStore()
	err := e.tx().StepIn(e.ctx, r, func(_ context.Context, insert func(string) error) ([]byte, error) {
		err := insert(row)
		e.row(row, false)
		if i, ok := e.store.(store.Inspector); ok && r.Key != "" && err == nil {
			var rec store.Record
			rec, err = i.Get(e.ctx, r.Key)
			e.steps(rec)
		}
		return []byte("value of " + row), errors.Join(err, result)
	})
	if errors.Is(err, errors.ErrUnsupported) {
		e.t.Skip("the store has no steps with transactions of their own")
	}
	return err
}

func stepOf(o store.Owner) store.StepRecord {
	return store.StepRecord{Key: key, Owner: o, Name: "charge"}
}

func txStep(e *env) {
	e.tx()
	e.claimed()
	e.ok("StepIn", e.stepIn(stepOf(alice), "row", nil))
	e.row("row", true)
	e.ok("Release", e.release(alice))
	r := e.claim(key, bob)
	e.mine(r, 2)
	e.steps(r, "charge", "value of row")
}

func txStepFails(e *env) {
	e.tx()
	e.claimed()
	failed := errors.New("failed")
	e.refused("StepIn", e.stepIn(stepOf(alice), "row", failed), failed)
	e.row("row", false)
	e.ok("Release", e.release(alice))
	e.steps(e.claim(key, bob))
}

func txStepOvertaken(e *env) {
	e.tx()
	e.claimed()
	e.advance(lease + margin)
	e.mine(e.claim(key, bob), 2)
	e.refused("StepIn", e.stepIn(stepOf(alice), "row", nil), store.ErrNotOwner)
	e.row("row", false)
	e.ok("Release", e.release(bob))
	e.steps(e.claim(key, carol))
}

func txStepAlone(e *env) {
	e.tx()
	e.ok("StepIn", e.stepIn(store.StepRecord{}, "row", nil))
	e.row("row", true)
}
