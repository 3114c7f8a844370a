package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"example.com/idempotency"
	"example.com/idempotency/adapter"
	"example.com/idempotency/internal/sqlrecord"
	"example.com/idempotency/store"
)

// JoinsTransactions implements [store.TxStore].
func (s *Store) JoinsTransactions() {}

// InTx runs f in a transaction of the store's file, in which the program's own tables are, too.
//
// In a run of a guard with [idempotency.WithTransaction], the transaction becomes that of the run:
// if f returns nil, it is committed together with the answer, after the handler has returned. So
// InTx is what a handler does last, and soon: SQLite has one writer, and until the handler returns
// no other request can be claimed or completed. If f returns an error, the transaction is rolled
// back at once, and InTx returns the error. f must not commit or roll back itself.
//
// Outside of a run it is an ordinary transaction, which is committed before InTx returns. It waits for at
// most ten seconds for those before it: a handler that calls InTx with a context that is not of its run,
// while its run has a transaction, waits for itself. In a run
// without WithTransaction it returns [idempotency.ErrNoTransaction]. Errors of a second
// transaction in a run and others are those of [adapter.Join].
func (s *Store) InTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		return s.inPlainTx(ctx, f)
	}
	var t *joinedTx
	err := adapter.Join(ctx, op, s, func(key string, o store.Owner) (store.Transaction, error) {
		var err error
		t, err = s.begin(ctx, op, key, o)
		return t, err
	})
	if err != nil {
		return calls.Wrap("InTx", err)
	}
	defer t.leave()
	if err := f(t.tx); err != nil {
		return err
	}
	return t.ready(ctx)
}

var errNoWriter = errors.New("sqlitestore: InTx: other transactions have had the writer for ten seconds; if this is a call from a handler, it has to pass the context of the request; else ask whether another process is stopped in its transaction")

// inPlainTx waits for this process and for others, but not for f.
func (s *Store) inPlainTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	waiting, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	begun := false
	err := calls.Try(waiting, "InTx", func() error { return s.tryPlainTx(ctx, waiting, &begun, f) })
	if err != nil && !begun && ctx.Err() == nil && waiting.Err() != nil {
		err = errNoWriter
	}
	return err
}

func (s *Store) tryPlainTx(ctx, waiting context.Context, begun *bool, f func(tx *sql.Tx) error) error {
	if err := s.inPlace(); err != nil {
		return err
	}
	conn, err := s.write.Conn(waiting)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	*begun = true
	if err := f(tx); err != nil {
		return err
	}
	if err := s.commit(tx); err != nil {
		return err
	}
	return s.inPlace()
}

// begin begins the transaction of a run. It outlives ctx: the run's context ends when the handler
// returns, which is before the commit.
func (s *Store) begin(ctx context.Context, op *idempotency.Operation, key string, o store.Owner) (*joinedTx, error) {
	t := &joinedTx{store: s, op: op, key: key, owner: o}
	err := calls.Try(ctx, "Begin", func() (err error) {
		if err := s.inPlace(); err != nil {
			return err
		}
		if t.whole, t.conn, t.tx, err = s.lendOpen(ctx, key, o); err != nil {
			return err
		}
		if t.tx == nil {
			if t.conn, t.tx, err = s.seize(ctx); err != nil {
				return err
			}
		}
		begun := false
		defer func() {
			if !begun { // also if the driver panics: everybody waits for the writer
				t.end()
			}
		}()
		if err = t.fate.watch(t.conn); err == nil {
			err = ctx.Err()
		}
		if err == nil && t.whole != nil {
			_, err = t.tx.ExecContext(ctx, "SAVEPOINT "+claimed)
		}
		begun = err == nil
		return err
	})
	if err == nil {
		s.locked.Add(key, o)
		s.joined.Store(op, struct{}{})
	}
	return t, err
}

// hasJoined reports whether ctx is of a run that has a transaction in this store. Whatever else it
// wants to write would wait for its own end.
func (s *Store) hasJoined(ctx context.Context) bool {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		return false
	}
	_, is := s.joined.Load(op)
	return is
}

var (
	// errJoined is what a step gets in a transaction. It could not be recorded before its effect.
	errJoined = errors.New("sqlitestore: SQLite has one writer: take the step before the transaction")

	// errInside is what a claim, or a sweep, gets in a transaction.
	errInside = fmt.Errorf("sqlitestore: SQLite has one writer: call it before the transaction: %w", store.ErrTransactionOpen)

	// These say that the transaction has ended before InTx has.
	errCommitted  = fmt.Errorf("sqlitestore: InTx: the function has committed the transaction itself: %w", store.ErrCommittedAlone)
	errRolledBack = errors.New("sqlitestore: InTx: the transaction was rolled back, by a statement of the function or by SQLite")
)

// A joinedTx is the transaction of a run.
type joinedTx struct {
	store *Store
	op    *idempotency.Operation
	conn  *sql.Conn
	tx    *sql.Tx
	fate  fate
	whole *openClaim // that it is, or nil
	key   string
	owner store.Owner

	mu    sync.Mutex
	state store.TxState
	ended bool
}

var _ store.Transaction = (*joinedTx)(nil)

// State implements [store.Transaction].
func (t *joinedTx) State() store.TxState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look()
	return t.state
}

// look learns whether the handler has ended the transaction past the store. One that was ready and
// is gone stays ready, and cannot be completed: the handler believes that it has succeeded.
func (t *joinedTx) look() {
	committed, rolledBack := t.fate.get()
	switch {
	case t.ended, !committed && !rolledBack:
	case !committed && t.state == store.TxReady:
		t.end()
	default:
		t.giveUp()
	}
}

// giveUp rolls back whatever is open. What was committed before, stays.
func (t *joinedTx) giveUp() {
	t.end()
	t.state = store.TxGivenUp
	if committed, _ := t.fate.get(); committed {
		t.state = store.TxCommitted
	}
}

// ready says that the transaction is to be committed with the answer.
func (t *joinedTx) ready(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.look(); {
	case t.state == store.TxCommitted:
		return errCommitted
	case t.ended:
		return errRolledBack
	case ctx.Err() != nil:
		return ctx.Err()
	}
	t.state = store.TxReady
	return nil
}

// leave rolls back, unless the function has succeeded.
func (t *joinedTx) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == store.TxOpen {
		t.secure()
		t.giveUp()
	}
}

// claimed is the savepoint of a transaction that is a claim, before its handler has it.
const claimed = "idempotency_claimed"

// secure makes a claim that is the transaction a record, in place of what the function has done: its handler goes on,
// and nobody is to run beside it. On failure the key is lost with the transaction, unless that begins anew before
// another process takes it.
func (t *joinedTx) secure() {
	if committed, rolledBack := t.fate.get(); t.whole == nil || t.ended || committed || rolledBack {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := t.tx.ExecContext(ctx, "ROLLBACK TO "+claimed); err != nil {
		return
	}
	t.fate.unwatch(t.conn)
	t.whole.secure(ctx, t.tx)
}

// MaySaveStep implements [store.Transaction].
func (t *joinedTx) MaySaveStep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	return errJoined
}

// KeepClaim implements [store.ClaimTransaction].
func (t *joinedTx) KeepClaim(context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.secure()
}

// Rollback implements [store.Transaction].
func (t *joinedTx) Rollback(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.giveUp()
	}
	if t.state == store.TxCommitted {
		return errCommitted
	}
	return nil
}

// end rolls back a transaction that is still open, and gives the connection back.
func (t *joinedTx) end() {
	if t.ended {
		return
	}
	t.ended = true
	_ = t.tx.Rollback()
	t.fate.unwatch(t.conn)
	switch due := t.store.locked.Remove(t.key, t.owner); {
	case t.whole != nil:
		t.whole.resume(t.conn)
	case due:
		t.catchUp()
		fallthrough
	default:
		_ = t.conn.Close()
	}
	t.store.joined.Delete(t.op)
}

// catchUp makes a renewal that was due during the transaction, before anybody else of this process gets
// the writer: the lease may be over. It has no effect on a record that is completed.
func (t *joinedTx) catchUp() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	tx, err := t.conn.BeginTx(ctx, nil)
	if err != nil {
		return // the next renewal reports what is wrong
	}
	defer func() { _ = tx.Rollback() }()
	r, err := lookEven(ctx, tx, lookSQL, t.key)
	if err != nil {
		return
	}
	if _, err := r.Renew(t.owner, now()); err != nil {
		return
	}
	if put(ctx, tx, t.key, &r) == nil {
		_ = t.store.commit(tx)
	}
}

// Complete implements [store.Transaction].
func (t *joinedTx) Complete(ctx context.Context, c store.Completion) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.look(); {
	case t.state == store.TxCommitted:
		return errCommitted
	case t.ended:
		return &store.RolledBackError{Err: errRolledBack}
	}
	defer t.end()
	if err := t.record(ctx, c); err != nil { // no COMMIT was sent
		if errors.Is(err, store.ErrNotOwner) || errors.Is(err, store.ErrNotFound) {
			return store.ErrNotOwner
		}
		return &store.RolledBackError{Retry: true, Err: err}
	}
	return t.commit()
}

// record completes the record in the transaction.
func (t *joinedTx) record(ctx context.Context, c store.Completion) error {
	find := func() (sqlrecord.Row, error) { return lookEven(ctx, t.tx, lookSQL, t.key) }
	if t.whole != nil {
		find = func() (sqlrecord.Row, error) { return t.whole.find(ctx, t.tx) }
	}
	r, err := find()
	if err != nil {
		return err
	}
	if err := r.Commit(t.owner, c, now()); err != nil {
		return err
	}
	if err := put(ctx, t.tx, t.key, &r); err != nil {
		return err
	}
	return t.store.inPlace()
}

// isRolledBack reports whether an error of COMMIT is definite. The driver rolls back a transaction whose COMMIT
// has failed, so one of SQLite is, unless the disk has failed: then the store is asked.
func isRolledBack(err error) bool {
	c := code(err)
	return c != 0 && c != sqlite3.SQLITE_IOERR
}

// commit commits.
func (t *joinedTx) commit() error {
	err := t.tx.Commit()
	if t.whole != nil {
		t.whole.lentCommitted(err)
	}
	if isRolledBack(err) {
		return &store.RolledBackError{Retry: true, Err: err}
	}
	if err == nil {
		t.store.watch.Wake(t.key)
		err = t.store.inPlace() // else its rows and its record are gone
	}
	return err
}
