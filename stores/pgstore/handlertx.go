package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/idempotency/store"
)

// A handlerTx is the transaction of a run, as the handler sees it. Commit says that the handler
// wants one: the guard commits when the answer is known.
type handlerTx struct {
	tx     sender
	joined *joinedTx
}

// A sender sends statements: a transaction that may not have begun, or a [savepoint].
type sender interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	begun(ctx context.Context) (pgx.Tx, error)
}

// Commit says that the transaction is to be committed with the answer of the run. It waits for
// nothing. What is done with the transaction later fails.
func (h *handlerTx) Commit(ctx context.Context) error {
	t := h.joined
	err := t.ready()
	if err == nil || errors.Is(err, pgx.ErrTxClosed) {
		return err
	}
	_ = h.Rollback(ctx) // on failure the pool closes the connection
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = refused(t.state)
	return err
}

// ready says that the transaction is to be committed, or why it cannot be.
func (t *joinedTx) ready() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != store.TxOpen {
		return pgx.ErrTxClosed
	}
	err := t.tx.mayCommit()
	if err == nil {
		t.state = store.TxReady
	}
	return err
}

// Rollback rolls the transaction back, unless the handler has said that it is to be committed.
func (h *handlerTx) Rollback(ctx context.Context) error {
	t := h.joined
	t.secure(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != store.TxOpen {
		return pgx.ErrTxClosed
	}
	return t.giveUp(ctx)
}

// open reports whether the handler may go on, and keeps the end of the transaction waiting until
// release is called.
func (h *handlerTx) open() (release func(), err error) {
	t := h.joined
	t.mu.RLock()
	if t.state != store.TxOpen {
		t.mu.RUnlock()
		return nil, pgx.ErrTxClosed
	}
	if t.endedAlone() { // what came now would be in another transaction, or in none
		t.mu.RUnlock()
		return nil, errEndedAlone
	}
	return t.mu.RUnlock, nil
}

// use is open, and begins the transaction if it has not begun.
func (h *handlerTx) use(ctx context.Context) (tx pgx.Tx, release func(), err error) {
	leave, err := h.open()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if tx == nil { // also if the driver, or a tracer of the program, panics
			leave()
		}
	}()
	if tx, err = h.tx.begun(ctx); err != nil {
		return nil, nil, err
	}
	return tx, leave, nil
}

// Conn begins, and so does LargeObjects: what is done with them must be in the transaction. If that
// fails, the driver has closed the connection, and all that follows fails.
func (h *handlerTx) Conn() *pgx.Conn {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	if _, release, err := h.use(ctx); err == nil {
		defer release()
	}
	return h.joined.conn.Conn()
}

func (h *handlerTx) LargeObjects() pgx.LargeObjects {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
	defer cancel()
	tx, release, err := h.use(ctx)
	if err != nil {
		return pgx.LargeObjects{}
	}
	defer release()
	return tx.LargeObjects()
}

func (h *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, release, err := h.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	inner, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepointTx{handlerTx{savepoint{inner}, h.joined}}, nil
}

// A savepoint is a transaction of the driver's inside another one. It has begun.
type savepoint struct{ pgx.Tx }

func (s savepoint) begun(context.Context) (pgx.Tx, error) { return s.Tx, nil }

// A savepointTx is a transaction inside that of a run. It can do nothing either when the handler has
// said that the outer one is to be committed: its rollback would take rows back that the answer tells of.
type savepointTx struct{ handlerTx }

func (s *savepointTx) Commit(ctx context.Context) error {
	tx, release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	return tx.Commit(ctx)
}

func (s *savepointTx) Rollback(ctx context.Context) error {
	tx, release, err := s.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	return tx.Rollback(ctx)
}

func (h *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	release, err := h.open()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer release()
	return h.tx.Exec(ctx, sql, args...)
}

func (h *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	release, err := h.open()
	if err != nil {
		return closedRows{err: err}, err
	}
	defer release()
	return h.tx.Query(ctx, sql, args...)
}

func (h *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	release, err := h.open()
	if err != nil {
		return closedRows{err: err}
	}
	defer release()
	return h.tx.QueryRow(ctx, sql, args...)
}

func (h *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	tx, release, err := h.use(ctx)
	if err != nil {
		return closedBatch{err}
	}
	defer release()
	return tx.SendBatch(ctx, b)
}

func (h *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	tx, release, err := h.use(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	return tx.CopyFrom(ctx, table, columns, src)
}

func (h *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	tx, release, err := h.use(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return tx.Prepare(ctx, name, sql)
}
