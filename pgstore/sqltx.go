package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"example.com/idempotency"
)

// InSQLTx is [Store.InTx] for a program that reaches the same database through database/sql, as
// with GORM, bun, ent, sqlc or lib/pq. Give the transaction to the library that f uses. f must not
// commit or roll it back itself, must not keep it, and must not let the library begin another one.
// If f has ended it all the same, InSQLTx returns an error. Nobody can tell a commit from a
// rollback then, so the run counts as one that was executed, and under [idempotency.Hold] its key
// is held unless the handler answers definitely.
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
		defer t.leave(ctx)
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
	began string             // the server's time of BEGIN, which tells the transaction from any other
	cut   context.CancelFunc // ends what the driver does for the transaction

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
	t := &joinedSQLTx{store: s, tx: tx, key: key, owner: o, cut: cancel}
	switch {
	case opts == nil || opts.Isolation == sql.LevelDefault:
		t.locks = s.strict
	default:
		t.locks = opts.Isolation > sql.LevelReadCommitted
	}
	if t.began, err = t.probe(ctx); err != nil {
		t.giveUp(context.WithoutCancel(ctx), idempotency.TxGivenUp)
		return nil, err
	}
	if !t.locks {
		return t, nil
	}
	s.locked.Store(lockOf(key, o), new(atomic.Bool))
	var one int
	if err = tx.QueryRowContext(ctx, s.sql.lock, key, o[:]).Scan(&one); err == nil {
		return t, nil
	}
	t.giveUp(context.WithoutCancel(ctx), idempotency.TxGivenUp)
	if errors.Is(err, sql.ErrNoRows) {
		err = idempotency.ErrLeaseLost
	}
	return nil, err
}

// probe returns the time at which the transaction began, or else the statement itself.
func (t *joinedSQLTx) probe(ctx context.Context) (began string, err error) {
	err = t.tx.QueryRowContext(ctx, "SELECT extract(epoch FROM now())::text").Scan(&began)
	return began, err
}

// isDone reports whether the function has ended the transaction by its methods. It asks the pool,
// and neither the server nor a connection that is in use: a statement of another database is
// refused, but only while there is a transaction.
func (t *joinedSQLTx) isDone() bool {
	return errors.Is(t.tx.StmtContext(context.Background(), new(sql.Stmt)).Close(), sql.ErrTxDone)
}

// State implements [idempotency.Transaction].
func (t *joinedSQLTx) State() idempotency.TxState {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended && t.isDone() {
		t.state = idempotency.TxCommitted
		t.end()
	}
	return t.state
}

// MaySaveStep implements [idempotency.Transaction].
func (t *joinedSQLTx) MaySaveStep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.locks && !t.ended {
		return errLocked
	}
	return nil
}

// ready says that the transaction is to be committed with the answer. It asks the server whether
// the transaction is still the one that was begun: the function may have ended it.
func (t *joinedSQLTx) ready(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, err := t.probe(ctx)
	switch {
	case err == nil && now == t.began:
		t.state = idempotency.TxReady
		return nil
	case err == nil, errors.Is(err, sql.ErrTxDone):
		t.giveUp(context.WithoutCancel(ctx), idempotency.TxCommitted)
		return errCommittedAlone
	default:
		return err
	}
}

// errCommittedAlone says that a function has ended the transaction that was given to it.
var errCommittedAlone = errors.New("pgstore: InSQLTx: the function has committed or rolled back by itself")

// leave rolls back, unless the function has succeeded. If it has failed or panicked, it may have
// committed before that. A transaction in which a statement has failed has not been ended.
func (t *joinedSQLTx) leave(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != idempotency.TxOpen {
		return
	}
	ctx = context.WithoutCancel(ctx)
	ask, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	state := idempotency.TxGivenUp
	if now, err := t.probe(ask); errors.Is(err, sql.ErrTxDone) || err == nil && now != t.began {
		state = idempotency.TxCommitted
	}
	t.giveUp(ctx, state)
}

// giveUp rolls back whatever is open.
func (t *joinedSQLTx) giveUp(ctx context.Context, state idempotency.TxState) {
	ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	t.state = state
	_ = t.within(ctx, t.tx.Rollback)
	if t.end() {
		t.store.catchUp(ctx, t.key, t.owner)
	}
}

// within calls Commit or Rollback, which take no context: over a connection that is silent they
// would not return. When the context ends, the driver is told to end the connection.
func (t *joinedSQLTx) within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.cut()
		return ctx.Err()
	}
}

// end notes the end, and reports whether a renewal was due meanwhile.
func (t *joinedSQLTx) end() (due bool) {
	t.ended = true
	return t.locks && t.store.unlock(t.key, t.owner)
}

// Rollback implements [idempotency.Transaction].
func (t *joinedSQLTx) Rollback(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.giveUp(ctx, idempotency.TxGivenUp)
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
		_ = t.within(ctx, t.tx.Rollback)
		if code(err) == divisionByZero {
			return idempotency.ErrNotOwner
		}
		return &idempotency.RolledBackError{Retry: mayPass(err), Err: err}
	}
	err = t.within(ctx, t.tx.Commit)
	if err != nil && isDefinite(err) {
		return &idempotency.RolledBackError{Retry: mayPass(err), Err: err}
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
