package pgstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"example.com/idempotency/store"
)

// A joinedTx is the transaction of a run, as the guard sees it. The handler has a [handlerTx].
type joinedTx struct {
	tx    *lazyTx
	store *Store
	conn  *stdlib.Conn // of the store's connector, so that database/sql can have it
	lent  bool         // database/sql has it, and gives it back
	key   string
	owner store.Owner
	locks bool     // it keeps the record locked, and calls of others do not wait for it
	whole wholeRun // of a transaction that is the claim of the run, and nil for others
	holds bool     // its connection is one of those that claims hold

	// mu orders what goroutines of the handler do with the transaction before its end, or after.
	mu    sync.RWMutex
	state store.TxState
	ended bool
	due   bool // a renewal, while the record was locked
	after []func()
}

var _ store.ClaimTransaction = (*joinedTx)(nil)

// A wholeRun is a run whose claim is its transaction.
type wholeRun interface {
	// record returns the statement that makes the record of the run, unless the key has one.
	record(done store.Completion) (sql string, args []any)
	// committed is told how the commit has ended.
	committed(err error)
	// secure makes the claim a record, before its transaction is given up. It does nothing if the state of that is beyond the last one.
	secure(ctx context.Context, t *joinedTx, last store.TxState)
}

// State implements [store.Transaction].
func (t *joinedTx) State() store.TxState {
	if !t.mu.TryLock() { // a goroutine of the handler uses it
		t.mu.RLock()
		defer t.mu.RUnlock()
		return t.state
	}
	defer t.mu.Unlock()
	if t.state == store.TxOpen && t.endedAlone() {
		return store.TxCommitted
	}
	return t.state
}

// endedAlone reports whether the handler has ended the transaction by a statement of its own. The
// server does not tell by which, so it may have been COMMIT.
func (t *joinedTx) endedAlone() bool {
	return !t.ended && t.tx.isOver()
}

// errEndedAlone is what a function gets that has ended its transaction.
var errEndedAlone = fmt.Errorf("pgstore: the function has committed or rolled back by itself: %w", store.ErrCommittedAlone)

// errLeftRows is what a function gets that has not read the rows of a query to their end, or has not closed
// them. PostgreSQL executes nothing on the connection meanwhile.
var errLeftRows = errors.New("pgstore: rolled back: the function has left rows open, or the results of a batch: close them")

// errFailed is what a function gets that wants a commit although a statement has failed.
var errFailed = fmt.Errorf("pgstore: rolled back: a statement has failed and the function has returned nil: return its error, or put the statement into a savepoint: %w", pgx.ErrTxCommitRollback)

// refused is the state of a transaction that was to be committed, and was given up.
func refused(s store.TxState) store.TxState {
	if s == store.TxGivenUp {
		return store.TxRefused
	}
	return s
}

// errOpen is what a call gets that needs the record of a run whose claim is still its open transaction.
var errOpen = errors.New("pgstore: the transaction of the run is its claim, and there is no record before it is committed: take the step before it")

// MaySaveStep implements [store.Transaction].
func (t *joinedTx) MaySaveStep() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch {
	case t.whole != nil && !t.ended:
		return errOpen
	case t.locks && !t.ended:
		return errLocked
	}
	return nil
}

// hasEnded reports whether it has ended. One that somebody uses has not.
func (t *joinedTx) hasEnded() bool {
	if !t.mu.TryRLock() {
		return false
	}
	defer t.mu.RUnlock()
	return t.ended
}

// Rollback implements [store.Transaction].
func (t *joinedTx) Rollback(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.giveUp(ctx) // on failure the pool closes the connection
	if t.state == store.TxCommitted {
		return errEndedAlone
	}
	return nil
}

// secure keeps the claim of the run for what its handler does after the transaction.
func (t *joinedTx) secure(ctx context.Context) {
	if t.whole != nil {
		t.whole.secure(ctx, t, store.TxOpen)
	}
}

// KeepClaim implements [store.ClaimTransaction].
func (t *joinedTx) KeepClaim(ctx context.Context) {
	if t.whole != nil {
		t.whole.secure(ctx, t, store.TxReady)
	}
}

// lives reports whether the transaction is open, as far as its process knows. Nobody else uses it.
func (t *joinedTx) lives() bool {
	return !t.hasEnded() && !t.conn.Conn().IsClosed()
}

// rollsBack rolls back, and reports whether the transaction had lived until then.
func (t *joinedTx) rollsBack(ctx context.Context) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended && t.giveUp(ctx) == nil && t.state != store.TxCommitted
}

// giveUp rolls back and gives the connection to the pool. What the handler has committed stays.
func (t *joinedTx) giveUp(ctx context.Context) error {
	if t.ended {
		return nil
	}
	t.state = store.TxGivenUp
	if t.endedAlone() {
		t.state = store.TxCommitted
	}
	err := t.end(ctx, t.tx.Rollback)
	if t.due {
		t.store.catchUp(ctx, t.key, t.owner)
	}
	return err
}

// end ends the transaction with f, once, and gives the connection back. The pool closes one whose
// transaction has not ended.
func (t *joinedTx) end(ctx context.Context, f func(context.Context) error) error {
	if t.ended {
		return nil
	}
	t.ended = true
	defer t.letGo() // also if the driver, or a tracer of the program, panics
	return f(ctx)
}

func (t *joinedTx) letGo() {
	if t.locks {
		t.due = t.store.locked.Remove(t.key, t.owner)
	}
	if !t.lent {
		_ = t.conn.Close()
	}
	if t.holds {
		t.store.held.Add(-1)
	}
}

// lend gives the connection to database/sql, once.
func (t *joinedTx) lend() *stdlib.Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || t.lent {
		return nil
	}
	t.lent = true
	return t.conn
}

// undo rolls back, also when the context has ended.
func (t *joinedTx) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = t.Rollback(ctx)
}

// commitAlone commits without the run, as its function has wanted.
func (t *joinedTx) commitAlone(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = store.TxCommitted
	return t.end(ctx, t.tx.tx.Commit)
}

// Complete implements [store.Transaction]: the record is completed and the transaction
// committed in one round trip. The commit is not reached if the owner has lost the claim.
func (t *joinedTx) Complete(ctx context.Context, c store.Completion) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	if t.whole == nil {
		err = t.commit(ctx, t.store.sql.fenced, t.store.fencedArgs(t.key, t.owner, c))
	} else {
		sql, args := t.whole.record(c)
		err = t.commit(ctx, sql, args)
		t.whole.committed(err)
	}
	if err == nil && len(t.after) > 0 {
		go runAll(t.after)
	}
	return err
}

// runAll runs the functions one after another. A panic is that of the program.
func runAll(fs []func()) {
	for _, f := range fs {
		f()
	}
}

// commit ends the transaction with commitWith.
func (t *joinedTx) commit(ctx context.Context, fenced string, args []any) error {
	switch {
	case t.ended && t.state == store.TxCommitted:
		return errEndedAlone
	case t.ended: // its function has rolled it back
		return &store.RolledBackError{Err: pgx.ErrTxClosed}
	}
	err := t.end(ctx, func(ctx context.Context) error { return t.tx.commitWith(ctx, fenced, args) })
	if err != nil && t.due {
		t.store.catchUp(ctx, t.key, t.owner)
	}
	return err
}

// commitWith sends a statement that fails unless the owner has its claim, and COMMIT, in one round trip.
func (l *lazyTx) commitWith(ctx context.Context, fenced string, args []any) error {
	conn := l.conn
	if conn.IsClosed() { // nothing was sent, and the server rolls back what it has
		return &store.RolledBackError{Retry: true, Err: errors.New("pgstore: the connection of the transaction is lost")}
	}
	if conn.PgConn().IsBusy() {
		return &store.RolledBackError{Err: errLeftRows}
	}
	if l.isOver() { // what is sent now would be committed without the rows
		return errEndedAlone
	}
	if l.judge != nil {
		if err := l.judge(); err != nil {
			_ = conn.Close(ctx) // it is of no use to anybody, and the server rolls back
			return &store.RolledBackError{Retry: true, Err: err}
		}
	}
	if _, err := l.begun(ctx); err != nil { // the function has sent no statement, and no COMMIT was sent
		return &store.RolledBackError{Retry: true, Err: err}
	}
	batch := new(pgx.Batch)
	batch.Queue(fenced, args...)
	batch.Queue("COMMIT")
	results := conn.SendBatch(ctx, batch)
	_, fence := results.Exec()
	var tag pgconn.CommandTag
	var commit error
	if fence == nil {
		tag, commit = results.Exec()
	}
	closing := results.Close()
	switch {
	case fence != nil:
		return l.notCommitted(ctx, fence, refusal(fence))
	case commit != nil:
		return l.notCommitted(ctx, commit, nil)
	case tag.String() == "ROLLBACK":
		return &store.RolledBackError{Err: errFailed}
	case closing != nil:
		return closing
	}
	return nil
}

// refusal returns what the error of a fence means, and nil if it is another error.
func refusal(err error) error {
	fenced := func(text string) bool { return code(err) == noObject && strings.Contains(err.Error(), text) }
	switch {
	case fenced(lostText), code(err) == uniqueViolation: // the record is another's
		return store.ErrNotOwner
	case fenced(endedText), errors.Is(err, sql.ErrTxDone):
		return errEndedAlone
	case fenced(behindText):
		return &store.RolledBackError{Retry: true, Err: errBehind}
	}
	return nil
}

// notCommitted judges an error of the last statements. An error with which the server goes on has
// rolled back for sure, unless the fence has refused; another one may have come after the commit.
func (l *lazyTx) notCommitted(ctx context.Context, err, refused error) error {
	reply, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || reply.SeverityUnlocalized != "ERROR" {
		return err
	}
	_ = l.Rollback(ctx)                // on failure the pool closes the connection
	if errors.Is(refused, errBehind) { // and this one is of no use to anybody
		_ = l.conn.Close(ctx)
	}
	if refused != nil {
		return refused
	}
	return &store.RolledBackError{Retry: mayPass(err), Err: err}
}
