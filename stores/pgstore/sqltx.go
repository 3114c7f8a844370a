package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"sync/atomic"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/giveup"
	"example.com/idempotency/store"
)

// InSQLTx is [Store.InTx] for a program that reaches the same database through database/sql, as
// with GORM, bun, ent, sqlc or lib/pq. Give the transaction to the library that f uses. f must not
// commit or roll it back itself, must not keep it, and must not let the library begin another one.
// If f has ended it all the same, InSQLTx returns an error. Nobody can tell a commit from a
// rollback then, so the run counts as one that was executed, and under [idempotency.Hold] its key
// is held unless the handler answers definitely. If the transaction is ended when InSQLTx has
// returned, the outcome of the run is unknown.
func (s *Store) InSQLTx(ctx context.Context, db *sql.DB, opts *sql.TxOptions, f func(tx *sql.Tx) error) error {
	return again(ctx, func() error {
		op, ok := idempotency.FromContext(ctx)
		if !ok {
			return inPlainSQLTx(ctx, db, opts, f)
		}
		var t *joinedSQLTx
		err := adapter.Join(ctx, op, s, func(key string, o store.Owner) (store.Transaction, error) {
			var err error
			t, err = s.beginSQL(ctx, db, key, o, opts)
			return t, err
		})
		if err != nil {
			return calls.Wrap("InSQLTx", err)
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
		return calls.Wrap("InSQLTx", err)
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
	run   sqlRun // has a lazyTx on a database of OpenDB
	key   string
	owner store.Owner
	locks bool
	cut   context.CancelFunc // ends what the driver does for the transaction

	mu    sync.Mutex
	state store.TxState
	ended bool
}

var _ store.ClaimTransaction = (*joinedSQLTx)(nil)

func (s *Store) beginSQL(ctx context.Context, db *sql.DB, key string, o store.Owner, opts *sql.TxOptions) (*joinedSQLTx, error) {
	if opts == nil {
		opts = new(sql.TxOptions)
	}
	want, err := pgxOptions(opts)
	if err != nil {
		return nil, err
	}
	t := &joinedSQLTx{store: s, key: key, owner: o, run: sqlRun{opts: want}}
	if d, ok := db.Driver().(sqlDriver); ok && d.pool == s.business {
		t.run.whole, err = s.joinOpen(ctx, key, o, want)
	} else if err = s.needRecord(ctx, key, o); err == nil {
		err = s.leadsHere(ctx, db)
	}
	if err != nil {
		return nil, err
	}
	err = t.begin(ctx, db, opts)
	if t.run.whole != nil && err != nil {
		t.run.whole.secure(ctx)
		t.run.whole.undo(ctx)
		if errors.Is(err, driver.ErrBadConn) { // that of the claim is lost, or the database has given others
			t.run = sqlRun{opts: want}
			if err = s.needRecord(ctx, key, o); err == nil {
				err = t.begin(ctx, db, opts)
			}
		}
	}
	if err == nil {
		err = t.prepare(ctx)
	}
	return t, err
}

// begin begins.
func (t *joinedSQLTx) begin(ctx context.Context, db *sql.DB, opts *sql.TxOptions) error {
	// database/sql rolls a transaction back when the context of BeginTx ends. The run's context
	// ends when the handler returns, which is before the commit.
	begin, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := db.BeginTx(context.WithValue(begin, sqlRunKey{}, &t.run), opts)
	if !stop() && err == nil {
		_ = tx.Rollback()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return err
	}
	t.tx, t.cut = tx, cancel
	return nil
}

// prepare marks the transaction and locks its record, as far as that is left to do.
func (t *joinedSQLTx) prepare(ctx context.Context) (err error) {
	if t.run.lazyTx == nil {
		_, err = t.tx.ExecContext(ctx, mark)
	}
	if t.locks = t.run.whole == nil && t.store.isStrict(t.run.opts); err == nil && t.locks {
		t.store.locked.Add(t.key, t.owner)
		var one int
		if err = t.tx.QueryRowContext(ctx, t.store.sql.lock, t.key, t.owner[:]).Scan(&one); errors.Is(err, sql.ErrNoRows) {
			err = idempotency.ErrLeaseLost
		}
	}
	if err != nil {
		t.giveUp(context.WithoutCancel(ctx), store.TxGivenUp)
	}
	return err
}

// endedAlone reports whether the transaction is over, or another one has begun since, or the error for
// which nobody knows. Unless the database is one of OpenDB, it asks the server.
func (t *joinedSQLTx) endedAlone(ctx context.Context) (bool, error) {
	if t.run.lazyTx != nil {
		_, err := t.tx.ExecContext(ctx, askMark)
		if errors.Is(err, sql.ErrTxDone) || errors.Is(err, errEndedAlone) {
			return true, nil
		}
		return false, err
	}
	var marked string
	err := t.tx.QueryRowContext(ctx, askMark).Scan(&marked)
	if errors.Is(err, sql.ErrTxDone) {
		return true, nil
	}
	return err == nil && marked != "on", err
}

// isDone reports whether the function has ended the transaction by its methods. It asks the pool,
// and neither the server nor a connection that is in use: a statement of another database is
// refused, but only while there is a transaction.
func (t *joinedSQLTx) isDone() bool {
	return errors.Is(t.tx.StmtContext(context.Background(), new(sql.Stmt)).Close(), sql.ErrTxDone)
}

// State implements [store.Transaction].
func (t *joinedSQLTx) State() store.TxState {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == store.TxOpen && !t.ended && t.isDone() {
		t.state = store.TxCommitted
		t.end()
	}
	return t.state
}

// MaySaveStep implements [store.Transaction].
func (t *joinedSQLTx) MaySaveStep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.run.whole != nil && !t.ended:
		return errOpen
	case t.locks && !t.ended:
		return errLocked
	}
	return nil
}

// ready says that the transaction is to be committed with the answer. It asks the server whether
// the transaction is still the one that was begun: the function may have ended it.
func (t *joinedSQLTx) ready(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch alone, err := t.endedAlone(ctx); {
	case err != nil:
		t.undo(context.WithoutCancel(ctx))
		t.state = refused(t.state)
		if code(err) == transactionFailed {
			return errFailed
		}
		return err
	case alone:
		t.giveUp(context.WithoutCancel(ctx), store.TxCommitted)
		return errEndedAlone
	}
	t.state = store.TxReady
	return nil
}

// leave rolls back, unless the function has succeeded. If it has failed or panicked, it may have
// committed before that. A transaction in which a statement has failed has not been ended.
func (t *joinedSQLTx) leave(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == store.TxOpen {
		t.undo(context.WithoutCancel(ctx))
	}
}

// undo rolls back, and learns whether that comes too late.
func (t *joinedSQLTx) undo(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	state := store.TxGivenUp
	if alone, _ := t.endedAlone(ask); alone {
		state = store.TxCommitted
	}
	t.giveUp(ctx, state)
}

// giveUp rolls back whatever is open.
func (t *joinedSQLTx) giveUp(ctx context.Context, state store.TxState) {
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
	var left atomic.Int64
	var returned atomic.Bool // and neither panicked nor was given up
	_, err := giveup.Call(ctx, &left, func(context.Context) (any, error) {
		err := f()
		returned.Store(true)
		return nil, err
	})
	if !returned.Load() {
		t.cut()
	}
	return err
}

// end notes the end, and reports whether a renewal was due meanwhile.
func (t *joinedSQLTx) end() (due bool) {
	t.ended = true
	return t.locks && t.store.locked.Remove(t.key, t.owner)
}

// KeepClaim implements [store.ClaimTransaction].
func (t *joinedSQLTx) KeepClaim(ctx context.Context) {
	if t.run.whole != nil {
		t.run.whole.KeepClaim(ctx)
	}
}

// Rollback implements [store.Transaction].
func (t *joinedSQLTx) Rollback(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run.over.Store(true)
	if !t.ended {
		t.undo(ctx)
	}
	if t.state == store.TxCommitted {
		return errEndedAlone
	}
	return nil
}

// Complete implements [store.Transaction].
func (t *joinedSQLTx) Complete(ctx context.Context, c store.Completion) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return &store.RolledBackError{Err: sql.ErrTxDone}
	}
	defer t.end()
	if t.run.lazyTx != nil {
		complete := func() error {
			if t.run.whole != nil {
				return t.run.whole.Complete(ctx, c)
			}
			return t.run.commitWith(ctx, t.store.sql.fenced, t.store.fencedArgs(t.key, t.owner, c))
		}
		t.run.complete.Store(&complete)
		err := t.within(ctx, t.tx.Commit)
		if errors.Is(err, sql.ErrTxDone) {
			return errEndedAlone
		}
		return err
	}
	var n, told int64
	err := t.tx.QueryRowContext(ctx, t.store.sql.fenced, t.store.fencedArgs(t.key, t.owner, c)...).Scan(&n, &told)
	if err != nil { // no COMMIT was sent
		_ = t.within(ctx, t.tx.Rollback)
		if refused := refusal(err); refused != nil {
			return refused
		}
		return &store.RolledBackError{Retry: mayPass(err), Err: err}
	}
	err = t.within(ctx, t.tx.Commit)
	if err != nil && isDefinite(err) {
		return &store.RolledBackError{Retry: mayPass(err), Err: err}
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

// leadsHere returns nil if a database is that of the store, or why a transaction of it cannot be joined. It asks
// once.
func (s *Store) leadsHere(ctx context.Context, db *sql.DB) error {
	if s.known.Load() == db {
		return nil
	}
	own, err := viewFrom(ctx, s.pool.QueryRow, s.table, true)
	if err != nil {
		return err
	}
	theirs, err := viewFrom(ctx, db.QueryRowContext, s.table, false)
	switch {
	case err != nil:
		return err
	case theirs.place != own.place:
		return errors.New("db leads to another database than that of the store")
	}
	if err := theirs.serves(); err != nil {
		return err
	}
	s.known.Store(db)
	return nil
}
