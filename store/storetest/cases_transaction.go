package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/idempotency/store"
)

var transactionCases = []testCase{
	{"Transaction/commits its rows with the answer", func(e *env) {
		e.claimed()
		tx := e.ready(alice, "row")
		e.row("row", false)
		e.claim(bob).claimed(1)
		e.commit(tx)
		e.row("row", true)
		e.claim(bob).answer("answer").ttl(ttl)
	}},
	{"Transaction/wakes those who wait", func(e *env) {
		settled, _ := e.watch()
		e.claimed()
		e.claim(bob, watching).claimed(1)
		e.commit(e.ready(alice, "row"))
		e.wakes(settled)
	}},
	// The handler has succeeded, and the guard knows better.
	{"Transaction/rolls back without a record", func(e *env) {
		e.claimed()
		e.returned("Transaction.Rollback", e.ready(alice, "row").Rollback(e.ctx))
		e.row("row", false)
		e.claim(bob).claimed(1)
		e.release(alice)
		e.claim(bob).mine(2)
	}},
	{"Transaction/that was given up is followed by another", func(e *env) {
		e.claimed()
		tx := e.begin(alice, "first")
		e.returned("GiveUp", tx.GiveUp(e.ctx))
		e.inState(tx, store.TxGivenUp)
		e.commit(e.ready(alice, "second"))
		e.row("first", false)
		e.row("second", true)
		e.claim(bob).answer("answer")
	}},
	// A paused run comes back and begins its transaction.
	{"Transaction/of an owner that was overtaken is not committed", func(e *env) {
		e.takenOver()
		e.commitsNothing()
		e.row("row", false)
		e.complete(bob, "answer of bob")
		e.claim(carol).answer("answer of bob")
	}},
	// A run is paused in its transaction.
	{"Transaction/that is open when another takes over is not committed", func(e *env) {
		if e.transactions().Exclusive() {
			e.t.Skip("no time passes while a transaction is open")
		}
		e.claimed()
		tx := e.ready(alice, "row")
		e.advance(lease + margin)
		e.claim(bob).mine(2)
		e.refused(store.ErrNotOwner).commit(tx)
		e.row("row", false)
		e.claim(carol).claimed(2)
	}},
	// The guard gives the claim back, and the COMMIT is still on its way.
	{"Transaction/after Release is not committed", func(e *env) {
		e.settledFirst(func() { e.release(alice) })
		e.claim(alice).released(1)
	}},
	{"Transaction/after Hold is not committed", func(e *env) {
		e.settledFirst(func() { e.hold(alice) })
		e.claim(alice).held(1)
	}},
	// A commit whose reply is lost is looked up by Release. Whatever comes first, both tell the same
	// story. The two also meet in the store.
	{"Transaction/is committed or released", func(e *env) {
		for i := range 20 {
			row := fmt.Sprint("row ", i)
			e := e.on(row)
			e.claimed()
			tx := e.ready(alice, row)
			var committed, released error
			var both sync.WaitGroup
			both.Go(func() {
				time.Sleep(time.Duration(i%4) * 100 * time.Microsecond)
				committed = tx.Complete(e.ctx, completion("answer"))
			})
			both.Go(func() {
				time.Sleep(time.Duration(i%5) * 75 * time.Microsecond)
				released = e.store.Release(e.ctx, e.key, alice, store.Release{})
			})
			both.Wait()
			e.row(row, committed == nil)
			if committed == nil {
				e.refused(store.ErrNotOwner).returned("Release", released)
				e.claim(bob).answer("answer")
				continue
			}
			e.refused(store.ErrNotOwner).returned("Transaction.Complete", committed)
			e.returned("Release", released)
			e.claim(bob).mine(2)
		}
	}},
	// The database has refused the commit, so nothing has happened, and the run is over.
	{"Transaction/whose commit is refused is rolled back", func(e *env) {
		e.claimed()
		tx := e.begin(alice, "row")
		if err := tx.Spoil(e.ctx); errors.Is(err, errors.ErrUnsupported) {
			_ = tx.GiveUp(e.ctx)
			e.t.Skip("nothing spoils a commit of the store")
		} else {
			e.returned("Spoil", err)
		}
		e.returned("Ready", tx.Ready(e.ctx))
		if err := tx.Complete(e.ctx, completion("answer")); !rolledBack(err) {
			e.t.Fatalf("Transaction.Complete: got error %v, want a RolledBackError", err)
		}
		e.row("row", false)
		e.claim(bob).claimed(1)
		e.release(alice)
		e.claim(bob).mine(2)
	}},
	// Whatever a commit says that its caller did not wait for, it is true, and Release tells the rest.
	{"Transaction/a cancelled commit is looked up", func(e *env) {
		e.claimed()
		tx := e.ready(alice, "row")
		err := tx.Complete(e.cancelled().ctx, completion("answer"))
		if rolledBack(err) || errors.Is(err, store.ErrNotOwner) {
			e.row("row", false)
		}
		released := e.store.Release(e.ctx, e.key, alice, store.Release{})
		if err == nil || released != nil {
			e.refused(store.ErrNotOwner).returned("Release", released)
			e.row("row", true)
			e.claim(bob).answer("answer")
			return
		}
		e.row("row", false)
		e.claim(bob).mine(2)
	}},
	{"Transaction/a step is recorded with its rows", func(e *env) {
		e.claimed()
		e.stepIn(alice, "row", nil)
		e.row("row", true)
		e.release(alice)
		e.claim(bob).mine(2).steps("charge", "value of row")
	}},
	{"Transaction/a step that fails leaves nothing", func(e *env) {
		e.claimed()
		failed := errors.New("failed")
		e.refused(failed).stepIn(alice, "row", failed)
		e.row("row", false)
		e.release(alice)
		e.claim(bob).steps()
	}},
	{"Transaction/a step of an owner that was overtaken leaves nothing", func(e *env) {
		e.takenOver()
		e.refused(store.ErrNotOwner).stepIn(alice, "row", nil)
		e.row("row", false)
		e.release(bob)
		e.claim(carol).steps()
	}},
	{"Transaction/a step outside of a run leaves its rows", func(e *env) {
		e.stepIn(store.Owner{}, "row", nil)
		e.row("row", true)
	}},
}

// begin begins a transaction that inserts a row.
func (e *env) begin(o store.Owner, row string) Tx {
	e.t.Helper()
	tx, err := e.transactions().Begin(e.ctx, e.key, o)
	e.returned("Begin", err)
	e.returned("Insert", tx.Insert(e.ctx, row))
	e.inState(tx, store.TxOpen)
	return tx
}

// ready begins a transaction that inserts a row and is to be committed.
func (e *env) ready(o store.Owner, row string) Tx {
	e.t.Helper()
	tx := e.begin(o, row)
	e.returned("Ready", tx.Ready(e.ctx))
	e.inState(tx, store.TxReady)
	return tx
}

func (e *env) commit(tx Tx) {
	e.t.Helper()
	e.returned("Transaction.Complete", tx.Complete(e.ctx, completion("answer")))
}

func (e *env) inState(tx Tx, want store.TxState) {
	e.t.Helper()
	if got := tx.State(); got != want {
		e.t.Fatalf("the transaction is %v, want %v", got, want)
	}
}

// row fails the case unless the row is there, or is not.
func (e *env) row(row string, want bool) {
	e.t.Helper()
	if got, err := e.transactions().Has(e.ctx, row); err != nil || got != want {
		e.t.Fatalf("row %q: there is %t (%v), want %t", row, got, err, want)
	}
}

// rolledBack reports whether the error says that the transaction was surely not committed.
func rolledBack(err error) bool {
	_, ok := errors.AsType[*store.RolledBackError](err)
	return ok
}

// commitsNothing fails the case unless alice, who does not have the claim any more, cannot begin a
// transaction or cannot commit it.
func (e *env) commitsNothing() {
	e.t.Helper()
	tx, err := e.transactions().Begin(e.ctx, e.key, alice)
	if err != nil {
		return
	}
	e.returned("Insert", tx.Insert(e.ctx, "row"))
	e.returned("Ready", tx.Ready(e.ctx))
	e.refused(store.ErrNotOwner).commit(tx)
}

// settledFirst settles the claim before the transaction is completed: in it, or before it begins
// where that would wait for its end.
func (e *env) settledFirst(settle func()) {
	e.t.Helper()
	e.claimed()
	if e.transactions().Exclusive() {
		settle()
		e.commitsNothing()
	} else {
		tx := e.ready(alice, "row")
		settle()
		e.refused(store.ErrNotOwner).commit(tx)
	}
	e.row("row", false)
}

// stepIn makes a step of the owner, or of no run, which inserts a row.
func (e *env) stepIn(o store.Owner, row string, result error) {
	e.t.Helper()
	optional[store.StepStore](e)
	var step store.StepRecord
	if o != (store.Owner{}) {
		step = store.StepRecord{Key: e.key, Owner: o, Name: "charge"}
	}
	err := e.transactions().StepIn(e.ctx, step, func(_ context.Context, insert func(string) error) ([]byte, error) {
		err := insert(row)
		e.row(row, false)
		if i, ok := e.store.(store.Inspector); ok && step.Key != "" && err == nil {
			var r store.Record
			r, err = i.Get(e.ctx, step.Key)
			view{r, e.t}.steps()
		}
		return []byte("value of " + row), errors.Join(err, result)
	})
	if errors.Is(err, errors.ErrUnsupported) {
		e.t.Skip("the store has no steps with transactions of their own")
	}
	e.returned("StepIn", err)
}
