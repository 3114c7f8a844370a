package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"example.com/idempotency"
)

// InSQLTx is [Store.InTx] for a program that reaches the same database through database/sql, as
// with GORM, bun, ent, sqlc or lib/pq. Give the transaction to the library that f uses. f must not
// commit or roll it back itself, and must not let the library begin another one.
func (s *Store) InSQLTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(tx *sql.Tx) error) error {
	return again(ctx, func() error {
		op, ok := idempotency.FromContext(ctx)
		if !ok {
			return inPlainSQLTx(ctx, db, opts, f)
		}
		var t *joinedSQLTx
		err := op.Join(ctx, s, func(key string, o idempotency.Owner) (idempotency.Transaction, error) {
			var err error
			t, err = s.beginSQL(ctx, db, key, o, opts)
			return t, err
		})
		if err != nil {
			return wrap("InSQLTx", err)
		}
		defer t.giveUp()
		if err := f(t.tx); err != nil {
			return err
		}
		return t.ready(ctx)
	})
}

func inPlainSQLTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return wrap("InSQLTx", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A joinedSQLTx is the transaction of a run through database/sql.
type joinedSQLTx struct {
	store *Store
	tx    *sql.Tx
	key   string
	owner idempotency.Owner
	locks bool

	mu    sync.Mutex
	state idempotency.TxState
	ended bool
}

var _ idempotency.Transaction = (*joinedSQLTx)(nil)

func (s *Store) beginSQL(ctx context.Context, db *sql.DB, key string, o idempotency.Owner, opts *sql.TxOptions) (*joinedSQLTx, error) {
	// database/sql rolls a transaction back when the context of BeginTx ends. The run's context
	// ends when the handler returns, which is before the commit.
	begin, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := db.BeginTx(begin, opts)
	if !stop() && err == nil {
		_ = tx.Rollback()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	t := &joinedSQLTx{store: s, tx: tx, key: key, owner: o}
	switch {
	case opts == nil || opts.Isolation == sql.LevelDefault:
		t.locks = s.strict
	default:
		t.locks = opts.Isolation > sql.LevelReadCommitted
	}
	if !t.locks {
		return t, nil
	}
	s.locked.Store(lockOf(key, o), struct{}{})
	var one int
	switch err := tx.QueryRowContext(ctx, s.sql.lock, key, o[:]).Scan(&one); {
	case errors.Is(err, sql.ErrNoRows):
		t.giveUp()
		return nil, idempotency.ErrLeaseLost
	case err != nil:
		t.giveUp()
		return nil, err
	}
	return t, nil
}

// State implements [idempotency.Transaction].
func (t *joinedSQLTx) State() idempotency.TxState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// ready says that the transaction is to be committed with the answer. It asks the server for a sign
// that there is a transaction: the function may have ended it.
func (t *joinedSQLTx) ready(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.tx.ExecContext(ctx, "SELECT 1")
	switch {
	case err == nil:
		t.state = idempotency.TxReady
		return nil
	case errors.Is(err, sql.ErrTxDone):
		t.state = idempotency.TxCommitted
		t.end()
		return errCommittedAlone
	default:
		return err
	}
}

// errCommittedAlone says that a function has ended the transaction that was given to it.
var errCommittedAlone = errors.New("pgstore: InSQLTx: the function has committed or rolled back by itself")

// giveUp rolls back, unless the function has succeeded.
func (t *joinedSQLTx) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == idempotency.TxOpen {
		t.state = idempotency.TxGivenUp
		_ = t.tx.Rollback()
		t.end()
	}
}

func (t *joinedSQLTx) end() {
	t.ended = true
	if t.locks {
		t.store.locked.Delete(lockOf(t.key, t.owner))
	}
}

// Rollback implements [idempotency.Transaction].
func (t *joinedSQLTx) Rollback(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		_ = t.tx.Rollback()
		t.state = idempotency.TxGivenUp
		t.end()
	}
}

// Complete implements [idempotency.Transaction].
func (t *joinedSQLTx) Complete(ctx context.Context, c idempotency.Completion) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return &idempotency.RolledBackError{Err: sql.ErrTxDone}
	}
	defer t.end()
	var n, told int64
	err := t.tx.QueryRowContext(ctx, t.store.sql.fenced, t.store.completeArgs(t.key, t.owner, c)...).Scan(&n, &told)
	if err != nil { // no COMMIT was sent
		_ = t.tx.Rollback()
		if code(err) == divisionByZero {
			return idempotency.ErrNotOwner
		}
		return &idempotency.RolledBackError{Retry: code(err) == "" || conflicts(err), Err: err}
	}
	err = t.tx.Commit()
	if err != nil && isDefinite(err) {
		return &idempotency.RolledBackError{Retry: conflicts(err), Err: err}
	}
	return err
}

// isDefinite reports whether the server has refused a COMMIT, and lives.
func isDefinite(err error) bool {
	switch c := code(err); {
	case len(c) != 5:
		return false
	default: // 08 is a lost connection, 57 an operator, 58 and XX a broken server
		class := c[:2]
		return class != "08" && class != "57" && class != "58" && class != "XX"
	}
}
