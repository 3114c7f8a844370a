package sqlitestore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"strings"
	"sync"
	"syscall"

	"modernc.org/sqlite"

	"example.com/idempotency/stores/sqlitestore"
)

// This file is a driver that kills its own process before or after the nth statement, as kill -9 does.

// killerName is the name of the driver.
const killerName = "sqlite that kills"

// A killer counts the moments at which it may kill: before each statement and after it, and inside
// the COMMIT of a run's transaction.
type killer struct {
	mu      sync.Mutex
	moments []string
	last    int // the number of the moment that is the last one of the process, or negative
}

var theKiller = &killer{last: -1}

// useKiller lets all stores of this process use the driver.
func useKiller(last int) {
	theKiller.last = last
	sql.Register(killerName, killingDriver{&sqlite.Driver{}})
	sqlitestore.UseDriver(killerName)
}

// moment is a moment at which the process may be killed.
func (k *killer) moment(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moments = append(k.moments, name)
	if len(k.moments)-1 != k.last {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// around makes a statement.
func (k *killer) around(statement string, send func()) {
	name := strings.Join(strings.Fields(statement), " ")
	name = name[:min(len(name), 40)]
	k.moment("before " + name)
	send()
	k.moment("after " + name)
}

type killingDriver struct{ driver.Driver }

func (d killingDriver) Open(name string) (c driver.Conn, err error) {
	theKiller.around("OPEN", func() { c, err = d.Driver.Open(name) })
	if err != nil {
		return nil, err
	}
	return &killingConn{c.(sqliteConn)}, nil
}

// A sqliteConn is what the driver's connections can do.
type sqliteConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
	sqlite.HookRegisterer
}

type killingConn struct{ sqliteConn }

func (c *killingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	theKiller.around("BEGIN", func() { tx, err = c.sqliteConn.BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return killingTx{tx}, nil
}

func (c *killingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	theKiller.around(query, func() { r, err = c.sqliteConn.ExecContext(ctx, query, args) })
	return r, err
}

func (c *killingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Rows, err error) {
	theKiller.around(query, func() { r, err = c.sqliteConn.QueryContext(ctx, query, args) })
	return r, err
}

func (c *killingConn) RegisterCommitHook(f sqlite.CommitHookFn) {
	if f == nil {
		c.sqliteConn.RegisterCommitHook(nil)
		return
	}
	c.sqliteConn.RegisterCommitHook(func() int32 {
		theKiller.moment("inside COMMIT")
		return f()
	})
}

type killingTx struct{ driver.Tx }

func (t killingTx) Commit() (err error) {
	theKiller.around("COMMIT", func() { err = t.Tx.Commit() })
	return err
}

func (t killingTx) Rollback() (err error) {
	theKiller.around("ROLLBACK", func() { err = t.Tx.Rollback() })
	return err
}
