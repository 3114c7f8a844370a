package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/store"
)

// JoinsTransactions implements [store.TxStore].
func (s *Store) JoinsTransactions() {}

// InTx runs f in a transaction on the pool that the store was made with.
//
// In a run of a guard with [idempotency.WithTransaction], the transaction becomes that of the run:
// if f returns nil, it is committed together with the answer, after the handler has returned. So
// InTx is what a handler does last, and the status that it answers does not matter: a 402 keeps
// its rows. If f returns an error, the transaction is rolled back at once, and InTx returns the
// error. A client error that the handler answers then is recorded all the same.
//
// f must close the rows that it reads, and must not end the transaction: InTx returns an error
// then, which is [store.ErrCommittedAlone] if f may have committed.
//
// When another transaction is in the way (40001, 40P01), InTx rolls back and runs f again, up to
// ten times. f must not do anything that a rollback does not undo, so it takes no step:
// when f runs again, the name of the step is used twice.
//
// Outside of a run it is an ordinary transaction, which is committed before InTx returns. In a run
// without WithTransaction it returns [idempotency.ErrNoTransaction]. Errors of a second
// transaction in a run and others are those of [adapter.Join].
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

// Begin begins a transaction as [Store.InTx] does, for code that wants a [pgx.Tx]. In a run,
// Commit only says that the transaction is to be committed with the answer, and what the code does
// with it afterwards fails with [pgx.ErrTxClosed]; see [AfterCommit] for what must wait for the
// commit. Call Commit or Rollback before the handler returns.
//
// BEGIN is sent together with the first statement, where the driver can do that, so an error of the
// connection may show only there. An argument of the first statement that the driver cannot encode ends
// the transaction and its connection.
func (s *Store) Begin(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		tx, err := s.business.BeginTx(ctx, opts)
		if err != nil {
			return nil, calls.Wrap("Begin", err)
		}
		return &plainTx{Tx: tx}, nil
	}
	var joined *joinedTx
	err := adapter.Join(ctx, op, s, func(key string, o store.Owner) (store.Transaction, error) {
		var err error
		joined, err = s.begin(ctx, key, o, opts)
		return joined, err
	})
	if err != nil {
		return nil, calls.Wrap("Begin", err)
	}
	return &handlerTx{joined.tx, joined}, nil
}

// begin begins the transaction of a run: at once if it must lock its record, and else with its first
// statement.
func (s *Store) begin(ctx context.Context, key string, o store.Owner, opts pgx.TxOptions) (*joinedTx, error) {
	if t, err := s.joinOpen(ctx, key, o, opts); err != nil || t != nil {
		return t, err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	t := &joinedTx{
		tx: &lazyTx{conn: conn.Conn(), opts: opts}, store: s, conn: conn, key: key, owner: o, locks: s.isStrict(opts),
	}
	if t.locks {
		// In a transaction that sees the past, a renewal from outside would make the completion fail. So it
		// locks its record first. Renew and the claims of others look at the lock.
		s.locked.Add(key, o)
		tag, err := t.tx.Exec(ctx, s.sql.lock, key, o[:])
		if err == nil && tag.RowsAffected() == 0 {
			err = idempotency.ErrLeaseLost
		}
		if err != nil {
			_ = t.giveUp(ctx)
			return nil, err
		}
	}
	return t, nil
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
