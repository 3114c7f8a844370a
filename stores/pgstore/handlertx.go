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
	pgx.Tx
	joined *joinedTx
}

// Commit says that the transaction is to be committed with the answer of the run. It waits for
// nothing. What is done with the transaction later fails.
func (h *handlerTx) Commit(ctx context.Context) error {
	t := h.joined
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.state != store.TxOpen:
		return pgx.ErrTxClosed
	case t.conn.Conn().PgConn().IsBusy():
		_ = t.giveUp(ctx) // which closes the connection
		return errLeftRows
	case t.endedAlone():
		_ = t.giveUp(ctx)
		return errEndedAlone
	case t.conn.Conn().PgConn().TxStatus() == 'E':
		return errors.Join(pgx.ErrTxCommitRollback, t.giveUp(ctx))
	}
	t.state = store.TxReady
	return nil
}

// Rollback rolls the transaction back, unless the handler has said that it is to be committed.
func (h *handlerTx) Rollback(ctx context.Context) error {
	t := h.joined
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

// Conn returns the connection, on which the transaction has begun.
func (h *handlerTx) Conn() *pgx.Conn {
	release, err := h.open()
	if err != nil {
		return h.joined.conn.Conn()
	}
	defer release()
	return h.Tx.Conn()
}

func (h *handlerTx) LargeObjects() pgx.LargeObjects {
	release, err := h.open()
	if err != nil {
		return pgx.LargeObjects{}
	}
	defer release()
	return h.Tx.LargeObjects()
}

func (h *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	release, err := h.open()
	if err != nil {
		return nil, err
	}
	defer release()
	inner, err := h.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepointTx{handlerTx{inner, h.joined}}, nil
}

// A savepointTx is a transaction inside that of a run. It can do nothing either when the handler has
// said that the outer one is to be committed: its rollback would take rows back that the answer tells of.
type savepointTx struct{ handlerTx }

func (s *savepointTx) Commit(ctx context.Context) error {
	release, err := s.open()
	if err != nil {
		return err
	}
	defer release()
	return s.Tx.Commit(ctx)
}

func (s *savepointTx) Rollback(ctx context.Context) error {
	release, err := s.open()
	if err != nil {
		return err
	}
	defer release()
	return s.Tx.Rollback(ctx)
}

func (h *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	release, err := h.open()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer release()
	return h.Tx.Exec(ctx, sql, args...)
}

func (h *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	release, err := h.open()
	if err != nil {
		return closedRows{err: err}, err
	}
	defer release()
	return h.Tx.Query(ctx, sql, args...)
}

func (h *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	release, err := h.open()
	if err != nil {
		return closedRows{err: err}
	}
	defer release()
	return h.Tx.QueryRow(ctx, sql, args...)
}

func (h *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	release, err := h.open()
	if err != nil {
		return closedBatch{err}
	}
	defer release()
	return h.Tx.SendBatch(ctx, b)
}

func (h *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	release, err := h.open()
	if err != nil {
		return 0, err
	}
	defer release()
	return h.Tx.CopyFrom(ctx, table, columns, src)
}

func (h *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	release, err := h.open()
	if err != nil {
		return nil, err
	}
	defer release()
	return h.Tx.Prepare(ctx, name, sql)
}
