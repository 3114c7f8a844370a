package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// AfterCommit lets f run after the commit of a transaction of [Store.Begin] or [Store.InTx], in a
// goroutine of its own, and never if there is no commit. A process that dies after the commit
// may not run it: what must happen belongs into the transaction, as a row of an outbox. A panic of f ends
// the process, as in any goroutine. It returns
// [pgx.ErrTxClosed] if the transaction has ended, and an error for any other transaction.
func AfterCommit(tx pgx.Tx, f func()) error {
	switch t := tx.(type) {
	case *handlerTx:
		release, err := t.open()
		if err != nil {
			return err
		}
		defer release()
		t.joined.after = append(t.joined.after, f)
		return nil
	case *plainTx:
		t.after = append(t.after, f)
		return nil
	default:
		return errors.New("pgstore: AfterCommit: not a transaction of this package")
	}
}

// A plainTx is a transaction outside of a run.
type plainTx struct {
	pgx.Tx
	after []func()
}

// Commit commits, and then runs what was to run after it.
func (t *plainTx) Commit(ctx context.Context) error {
	err := t.Tx.Commit(ctx)
	if err == nil && len(t.after) > 0 {
		go runAll(t.after)
		t.after = nil
	}
	return err
}
