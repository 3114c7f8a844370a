package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// OpenDB returns the connections of a pool for libraries that want database/sql, as
// [stdlib.OpenDBFromPool] does. On it, a run with [Store.InSQLTx] takes one round trip more than its
// transaction takes outside of a run, which is the claim. On a database that was opened otherwise it takes
// four more. With [WithOneCommit] and the pool of the store it takes none more: the connection of the claim, whose
// transaction has begun, becomes one of the database.
//
// Closing the database leaves the pool open. The pool keeps the idle connections, so do not let the
// database keep some, too. What [sql.Conn.Raw] gets is no [stdlib.Conn], but has its methods. If pool is nil,
// each use of the database returns an error.
func OpenDB(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(sqlConnector{stdlib.GetPoolConnector(pool), pool})
	db.SetMaxIdleConns(0)
	return db
}

// A sqlConnector gives database/sql the connections of a pool.
type sqlConnector struct {
	driver.Connector
	pool *pgxpool.Pool
}

// A sqlDriver tells of which pool a database has its connections.
type sqlDriver struct {
	driver.Driver
	pool *pgxpool.Pool
}

func (c sqlConnector) Driver() driver.Driver { return sqlDriver{c.Connector.Driver(), c.pool} }

// Connect takes a connection of the pool. For a run whose claim is a transaction, it is the claim's.
func (c sqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.pool == nil {
		return nil, errors.New("pgstore: OpenDB: pool is nil")
	}
	if run, ok := ctx.Value(sqlRunKey{}).(*sqlRun); ok && run.whole != nil {
		if conn := run.whole.lend(); conn != nil {
			return &sqlConn{Conn: conn}, nil
		}
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &sqlConn{Conn: conn.(*stdlib.Conn)}, nil
}

// A sqlConn is a connection of [OpenDB]. It begins the transaction of a run with its mark, and knows
// without asking whether it is over.
type sqlConn struct {
	*stdlib.Conn
	run *sqlRun // that has begun the last transaction, or nil
}

// A sqlRun is the transaction of a run on a connection of [OpenDB]. Its methods are called by
// database/sql, which lets no statement of the transaction run meanwhile.
type sqlRun struct {
	opts    pgx.TxOptions
	whole   *joinedTx       // the transaction that is the claim of the run, or nil
	*lazyTx                 // once it has begun
	ctx     context.Context // of BeginTx, which ends with the transaction

	// A goroutine of the handler may have kept the transaction, and end it beside the guard.

	complete atomic.Pointer[func() error] // commits in place of Commit, unless it is nil
	over     atomic.Bool                  // the handler has returned
}

// sqlRunKey is that of the sqlRun in the context of BeginTx.
type sqlRunKey struct{}

func (c *sqlConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	run, ok := ctx.Value(sqlRunKey{}).(*sqlRun)
	if c.run = run; !ok || c.Conn.Conn().IsClosed() {
		return c.Conn.BeginTx(ctx, opts)
	}
	tx := &lazyTx{conn: c.Conn.Conn(), opts: run.opts}
	if run.whole == nil {
		if _, err := tx.begun(ctx); err != nil {
			return nil, err
		}
	} else if tx = run.whole.tx; tx.conn != c.Conn.Conn() {
		return nil, driver.ErrBadConn // then database/sql takes another one, and at last a new one
	}
	run.ctx, run.lazyTx = ctx, tx
	return run, nil
}

// ExecContext answers the question for the mark by itself.
func (c *sqlConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.run != nil && query == askMark {
		return driver.RowsAffected(0), c.run.mayCommit()
	}
	return c.Conn.ExecContext(ctx, query, args)
}

// Commit commits, or completes the record with that.
func (r *sqlRun) Commit() error {
	switch complete := r.complete.Load(); {
	case complete != nil:
		return (*complete)()
	case r.whole != nil:
		return r.whole.commitAlone(r.ctx)
	}
	return r.tx.Commit(r.ctx)
}

// Rollback rolls back.
func (r *sqlRun) Rollback() error {
	if r.whole != nil {
		if !r.over.Load() {
			r.whole.secure(r.ctx)
		}
		return r.whole.Rollback(r.ctx)
	}
	return r.lazyTx.Rollback(r.ctx)
}

// pgxOptions are the options of a transaction as the driver has them.
func pgxOptions(opts *sql.TxOptions) (out pgx.TxOptions, err error) {
	switch level := opts.Isolation; level {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
		out.IsoLevel = pgx.TxIsoLevel(strings.ToLower(level.String()))
	case sql.LevelSnapshot:
		out.IsoLevel = pgx.RepeatableRead
	default:
		return out, errors.New("PostgreSQL has no isolation level " + level.String())
	}
	if opts.ReadOnly {
		out.AccessMode = pgx.ReadOnly
	}
	return out, nil
}
