package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

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

// A closedBatch is the result of a batch that was not sent.
type closedBatch struct{ err error }

func (b closedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b closedBatch) Query() (pgx.Rows, error)         { return closedRows(b), b.err }
func (b closedBatch) QueryRow() pgx.Row                { return closedRows(b) }
func (b closedBatch) Close() error                     { return b.err }
func (b closedBatch) Tx() pgx.Tx                       { return nil }

// closedRows are the rows of a query that was not sent.
type closedRows struct{ err error }

func (r closedRows) Close()                                       {}
func (r closedRows) Err() error                                   { return r.err }
func (r closedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r closedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r closedRows) Next() bool                                   { return false }
func (r closedRows) Scan(...any) error                            { return r.err }
func (r closedRows) Values() ([]any, error)                       { return nil, r.err }
func (r closedRows) RawValues() [][]byte                          { return nil }
func (r closedRows) Conn() *pgx.Conn                              { return nil }
func (r closedRows) TypeMap() *pgtype.Map                         { return nil }
