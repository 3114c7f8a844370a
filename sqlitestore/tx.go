package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"

	"example.com/idempotency"
)

// JoinsTransactions implements [idempotency.TxStore].
func (s *Store) JoinsTransactions() {}

// InTx runs f in a transaction of the store's file, in which the program's own tables are, too.
//
// In a run of a guard with [idempotency.WithTransaction], the transaction becomes that of the run:
// if f returns nil, it is committed together with the answer, after the handler has returned. So
// InTx is what a handler does last, and soon: SQLite has one writer, and until the handler returns
// no other request can be claimed or completed. If f returns an error, the transaction is rolled
// back at once, and InTx returns the error. f must not commit or roll back itself.
//
// Outside of a run it is an ordinary transaction, which is committed before InTx returns. In a run
// without WithTransaction it returns [idempotency.ErrNoTransaction]. Errors of a second
// transaction in a run and others are those of [idempotency.Operation.Join].
func (s *Store) InTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		return s.try(ctx, "InTx", func() error { return s.inPlainTx(ctx, f) })
	}
	var t *joinedTx
	err := op.Join(ctx, s, func(key string, o idempotency.Owner) (idempotency.Transaction, error) {
		tx, err := s.begin(ctx)
		t = &joinedTx{store: s, tx: tx, key: key, owner: o}
		if err == nil {
			s.joined.Store(joint(key, o), struct{}{})
		}
		return t, err
	})
	if err != nil {
		return wrap("InTx", err)
	}
	defer t.giveUp()
	if err := f(t.tx); err != nil {
		return err
	}
	return t.ready(ctx)
}

func (s *Store) inPlainTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// begin begins a transaction that outlives ctx: the run's context ends when the handler returns,
// which is before the commit.
func (s *Store) begin(ctx context.Context) (tx *sql.Tx, err error) {
	err = s.try(ctx, "Begin", func() error {
		begin, cancel := context.WithCancel(context.WithoutCancel(ctx))
		stop := context.AfterFunc(ctx, cancel)
		if tx, err = s.write.BeginTx(begin, nil); err != nil {
			cancel()
			return err
		}
		if !stop() {
			_ = tx.Rollback()
			return ctx.Err()
		}
		return nil
	})
	return tx, err
}

// joint names the run of a transaction.
func joint(key string, o idempotency.Owner) string { return string(o[:]) + key }

// isJoined reports whether the run has a transaction. Nobody else can write until its end.
func (s *Store) isJoined(key string, o idempotency.Owner) bool {
	_, is := s.joined.Load(joint(key, o))
	return is
}

// errJoined is what a step gets in a transaction. It could not be recorded before its effect.
var errJoined = errors.New("sqlitestore: SaveStep: the transaction of the run is open, and SQLite has one writer: take the step before it")

// errEnded says that a function has ended the transaction that was given to it.
var errEnded = errors.New("sqlitestore: InTx: the function has committed or rolled back by itself")

// A joinedTx is the transaction of a run.
type joinedTx struct {
	store *Store
	tx    *sql.Tx
	key   string
	owner idempotency.Owner

	mu    sync.Mutex
	state idempotency.TxState
	ended bool
}

var _ idempotency.Transaction = (*joinedTx)(nil)

// State implements [idempotency.Transaction].
func (t *joinedTx) State() idempotency.TxState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// ready says that the transaction is to be committed with the answer.
func (t *joinedTx) ready(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.tx.ExecContext(ctx, "SELECT 1")
	switch {
	case err == nil:
		t.state = idempotency.TxReady
	case errors.Is(err, sql.ErrTxDone):
		t.state = idempotency.TxCommitted
		t.end()
		return errEnded
	}
	return err
}

// giveUp rolls back, unless the function has succeeded.
func (t *joinedTx) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == idempotency.TxOpen {
		t.rollBack()
	}
}

// Rollback implements [idempotency.Transaction].
func (t *joinedTx) Rollback(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.rollBack()
	}
}

func (t *joinedTx) rollBack() {
	t.state = idempotency.TxGivenUp
	_ = t.tx.Rollback()
	t.end()
}

func (t *joinedTx) end() {
	t.ended = true
	t.store.joined.Delete(joint(t.key, t.owner))
}

// Complete implements [idempotency.Transaction].
func (t *joinedTx) Complete(ctx context.Context, c idempotency.Completion) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return &idempotency.RolledBackError{Err: sql.ErrTxDone}
	}
	if err := t.record(ctx, c); err != nil { // no COMMIT was sent
		t.rollBack()
		if errors.Is(err, idempotency.ErrNotOwner) || errors.Is(err, idempotency.ErrNotFound) {
			return idempotency.ErrNotOwner
		}
		return &idempotency.RolledBackError{Retry: true, Err: err}
	}
	defer t.end()
	return t.commit()
}

// record completes the record in the transaction.
func (t *joinedTx) record(ctx context.Context, c idempotency.Completion) error {
	r, err := look(ctx, t.tx, lookSQL, t.key)
	if err != nil {
		return err
	}
	changed, err := r.Complete(t.owner, c, now())
	if err == nil && !changed {
		err = idempotency.ErrNotOwner
	}
	if err != nil {
		return err
	}
	return put(ctx, t.tx, t.key, &r)
}

// commit commits. The driver rolls back a transaction whose COMMIT has failed, so an error of
// SQLite is definite, unless the disk has failed: then the store is asked.
func (t *joinedTx) commit() error {
	err := t.tx.Commit()
	if c := code(err); c != 0 && c != sqlite3.SQLITE_IOERR {
		return &idempotency.RolledBackError{Retry: true, Err: err}
	}
	if err == nil {
		t.store.wake(t.key)
	}
	return err
}
