package pgstore

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A lazyTx is a transaction whose BEGIN is sent together with its first statement, which saves a round
// trip. It begins by itself before anything that cannot be sent together with it.
type lazyTx struct {
	conn  *pgx.Conn
	opts  pgx.TxOptions
	judge func() error // why its server may not commit; nil if the fence in front of COMMIT asks

	mu      sync.Mutex
	tx      pgx.Tx // nil until it has begun
	reading bool   // the reply to the first statement has not been read to its end, and may never be
	told    bool   // the server has told the mark
}

// isOver reports whether the server has said that the transaction is over: by its status, or by its mark,
// where another one has begun since. Both are as in the last reply that was read to its end. A transaction in
// which a statement has failed has lost its mark, and is not over.
func (l *lazyTx) isOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tx == nil || l.reading || l.conn.PgConn().IsBusy() {
		return false
	}
	switch l.conn.PgConn().TxStatus() {
	case 'I':
		return true
	case 'T':
		return l.told && !l.isMarked()
	default:
		return false
	}
}

// mayCommit returns nil, or why the transaction cannot be committed with what its function has done.
func (l *lazyTx) mayCommit() error {
	switch {
	case l.conn.PgConn().IsBusy():
		return errLeftRows
	case l.isOver():
		return errEndedAlone
	case l.conn.PgConn().TxStatus() == 'E':
		return errFailed
	}
	return nil
}

// isMarked reports whether the server has told that the transaction of the connection has the mark.
// Behind a pooler that does not pass that on, it is false.
func (l *lazyTx) isMarked() bool { return l.conn.PgConn().ParameterStatus(markName) == "on" }

// begun begins unless the transaction has begun, and returns it.
func (l *lazyTx) begun(ctx context.Context) (pgx.Tx, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begin(ctx)
}

func (l *lazyTx) begin(ctx context.Context) (_ pgx.Tx, err error) {
	if l.tx != nil {
		return l.tx, nil
	}
	if l.tx, err = l.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginning(l.opts) + "; " + mark, CommitQuery: l.opts.CommitQuery}); err != nil {
		l.tx = nil
		return nil, err
	}
	l.told = l.isMarked()
	return l.tx, nil
}

// beginning is the statement that begins a transaction with the options.
func beginning(opts pgx.TxOptions) string {
	var b pgx.Batch
	b.BeginTx(opts)
	return b.QueuedQueries[0].SQL
}

// beginWith begins with a statement, and returns the results that follow. If the transaction has begun
// otherwise, it returns the transaction, and the statement is still to be sent.
func (l *lazyTx) beginWith(ctx context.Context, sql string, args []any) (pgx.BatchResults, pgx.Tx, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tx != nil || !l.batches(args) {
		tx, err := l.begin(ctx)
		return nil, tx, err
	}
	batch := new(pgx.Batch)
	batch.BeginTx(l.opts)
	batch.Queue(mark)
	batch.Queue(sql, args...)
	results := l.conn.SendBatch(ctx, batch)
	_, err := results.Exec()
	if err == nil {
		_, err = results.Exec()
	}
	if err == nil {
		l.tx, l.reading = results.Tx(), true
		return results, nil, nil
	}
	_ = results.Close()
	if l.conn.IsClosed() {
		return nil, nil, err
	}
	// The driver cannot prepare the statement, and nothing was executed. In the transaction the
	// statement gets the error that it deserves, and the transaction the state that follows.
	tx, err := l.begin(ctx)
	return nil, tx, err
}

// batches reports whether a statement with these arguments can be sent in a batch, and a transaction
// with these options begun in one.
func (l *lazyTx) batches(args []any) bool {
	if tracer := l.conn.Config().Tracer; tracer != nil {
		if _, ok := tracer.(pgx.BatchTracer); !ok {
			return false
		}
	}
	return l.opts.BeginQuery == "" && !slices.ContainsFunc(args, func(arg any) bool {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return true // a batch takes no options
		}
		return false
	})
}

// read ends the results of the first statement.
func (l *lazyTx) read(results pgx.BatchResults) error {
	err := results.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	// If the connection was lost in it, the state that the driver knows is that before BEGIN.
	l.reading, l.told = l.conn.IsClosed(), l.isMarked()
	return err
}

func (l *lazyTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if len(args) == 0 { // it may be several statements, which a batch does not take
		tx, err := l.begun(ctx)
		if err != nil {
			return tag, err
		}
		return tx.Exec(ctx, sql)
	}
	results, tx, err := l.beginWith(ctx, sql, args)
	switch {
	case err != nil:
		return tag, err
	case results == nil:
		return tx.Exec(ctx, sql, args...)
	}
	tag, err = results.Exec()
	if closing := l.read(results); err == nil {
		err = closing
	}
	return tag, err
}

func (l *lazyTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	results, tx, err := l.beginWith(ctx, sql, args)
	switch {
	case err != nil:
		return closedRows{err: err}, err
	case results == nil:
		return tx.Query(ctx, sql, args...)
	}
	rows, err := results.Query()
	first := &firstRows{Rows: rows, end: func() error { return l.read(results) }}
	if err != nil {
		first.Close()
	}
	return first, err
}

func (l *lazyTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	results, tx, err := l.beginWith(ctx, sql, args)
	switch {
	case err != nil:
		return closedRows{err: err}
	case results == nil:
		return tx.QueryRow(ctx, sql, args...)
	}
	return firstRow{results.QueryRow(), func() error { return l.read(results) }}
}

func (l *lazyTx) Rollback(ctx context.Context) error {
	l.mu.Lock()
	tx := l.tx
	l.mu.Unlock()
	if tx == nil {
		return nil
	}
	return tx.Rollback(ctx)
}

// firstRows are the rows of the first statement. When they end, so does its reply.
type firstRows struct {
	pgx.Rows
	end    func() error
	ended  bool
	ending error
}

func (r *firstRows) Close() {
	r.Rows.Close()
	if !r.ended {
		r.ended = true
		r.ending = r.end()
	}
}

func (r *firstRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.ending
}

func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Scan ends the rows if it fails, as the driver does.
func (r *firstRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

func (r *firstRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

// A firstRow is the row of the first statement.
type firstRow struct {
	pgx.Row
	end func() error
}

func (r firstRow) Scan(dest ...any) error {
	err := r.Row.Scan(dest...)
	if ending := r.end(); err == nil {
		err = ending
	}
	return err
}
