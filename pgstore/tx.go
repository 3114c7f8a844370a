package pgstore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/idempotency"
)

// JoinsTransactions implements [idempotency.TxStore].
func (s *Store) JoinsTransactions() {}

// maxTries is how often InTx and InSQLTx run a function that conflicts with other transactions.
const maxTries = 10

// InTx runs f in a transaction on the pool that the store was made with.
//
// In a run of a guard with [idempotency.WithTransaction], the transaction becomes that of the run:
// if f returns nil, it is committed together with the answer, after the handler has returned. So
// InTx is what a handler does last, and the status that it answers does not matter: a 402 keeps
// its rows. If f returns an error, the transaction is rolled back at once, and InTx returns the
// error. A client error that the handler answers then is recorded all the same.
//
// When another transaction is in the way (40001, 40P01), InTx rolls back and runs f again, up to
// ten times. f must not do anything that a rollback does not undo.
//
// Outside of a run it is an ordinary transaction, which is committed before InTx returns. In a run
// without WithTransaction it returns [idempotency.ErrNoTransaction]. Errors of a second
// transaction in a run and others are those of [idempotency.Operation.Join].
func (s *Store) InTx(ctx context.Context, opts pgx.TxOptions, f func(tx pgx.Tx) error) error {
	return again(ctx, func() error {
		tx, err := s.Begin(ctx, opts)
		if err != nil {
			return err
		}
		// It does nothing after Commit. The context of a client that has gone must not keep the
		// connection from being used again.
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
			defer cancel()
			_ = tx.Rollback(end)
		}()
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

// rollbackTimeout is how long a rollback may take before its connection is closed.
const rollbackTimeout = 5 * time.Second

// again runs a transaction, and runs it again while others are in the way.
func again(ctx context.Context, transact func() error) error {
	for try, pause := 1, time.Millisecond; ; try, pause = try+1, min(2*pause, 100*time.Millisecond) {
		err := transact()
		if !conflicts(err) || try == maxTries || ctx.Err() != nil {
			return err
		}
		// Two that have met should not meet again.
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// Begin begins a transaction as [Store.InTx] does, for code that wants a [pgx.Tx]. In a run,
// Commit only says that the transaction is to be committed with the answer, and what the code does
// with it afterwards fails with [pgx.ErrTxClosed]; see [AfterCommit] for what must wait for the
// commit. Call Commit or Rollback before the handler returns.
func (s *Store) Begin(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		tx, err := s.business.BeginTx(ctx, opts)
		if err != nil {
			return nil, wrap("Begin", err)
		}
		return &plainTx{Tx: tx}, nil
	}
	var joined *joinedTx
	err := op.Join(ctx, s, func(key string, o idempotency.Owner) (idempotency.Transaction, error) {
		var err error
		joined, err = s.begin(ctx, key, o, opts)
		return joined, err
	})
	if err != nil {
		return nil, wrap("Begin", err)
	}
	return &handlerTx{joined.tx, joined}, nil
}

// begin begins the transaction of a run.
func (s *Store) begin(ctx context.Context, key string, o idempotency.Owner, opts pgx.TxOptions) (*joinedTx, error) {
	conn, err := s.business.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &joinedTx{store: s, conn: conn, key: key, owner: o, locks: s.isStrict(opts)}
	if t.locks {
		err = t.beginLocked(ctx, opts)
	} else {
		t.tx, err = conn.BeginTx(ctx, opts)
	}
	if err == nil {
		return t, nil
	}
	_ = t.end(ctx, func(ctx context.Context) error {
		if t.tx == nil {
			return nil
		}
		return t.tx.Rollback(ctx)
	})
	return nil, err
}

// beginLocked begins a transaction that sees the past, and locks the record in the same round trip: a
// renewal from outside would make the completion fail. Renew and the claims of others look at the lock.
func (t *joinedTx) beginLocked(ctx context.Context, opts pgx.TxOptions) error {
	t.store.locked.Store(lockOf(t.key, t.owner), struct{}{})
	tag, err := t.beginAnd(ctx, opts, t.store.sql.lock, t.key, t.owner[:])
	if err == nil && tag.RowsAffected() == 0 {
		err = idempotency.ErrLeaseLost
	}
	return err
}

// beginAnd begins the transaction and runs its first statement in the same round trip.
func (t *joinedTx) beginAnd(ctx context.Context, opts pgx.TxOptions, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if opts.BeginQuery != "" { // it may be several statements, which a batch does not take
		if t.tx, err = t.conn.BeginTx(ctx, opts); err != nil {
			return tag, err
		}
		return t.tx.Exec(ctx, sql, args...)
	}
	batch := new(pgx.Batch)
	batch.BeginTx(opts)
	batch.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, batch)
	t.tx = results.Tx()
	if _, err = results.Exec(); err == nil {
		tag, err = results.Exec()
	}
	if closing := results.Close(); err == nil {
		err = closing
	}
	return tag, err
}

// isStrict reports whether the transaction will not see what others commit meanwhile.
func (s *Store) isStrict(opts pgx.TxOptions) bool {
	switch opts.IsoLevel {
	case "":
		return s.strict || opts.BeginQuery != ""
	case pgx.ReadCommitted, pgx.ReadUncommitted:
		return false
	default:
		return true
	}
}

// lockOf names the record that a transaction of this process keeps locked.
func lockOf(key string, o idempotency.Owner) string { return string(o[:]) + key }
