package sqlitestore

import (
	"database/sql"
	"errors"
	"sync/atomic"

	"modernc.org/sqlite"
)

// A fate is what has become of the transaction of a run. SQLite itself tells it, so that no way to
// end a transaction goes unseen: not that of database/sql, no statement, and no error after which
// SQLite rolls back.
type fate struct{ committed, rolledBack atomic.Bool }

var errNoHooks = errors.New("sqlitestore: the driver does not tell how transactions end")

// watch begins to watch the connection of the transaction.
func (f *fate) watch(conn *sql.Conn) error {
	return conn.Raw(func(c any) error {
		hooks, ok := c.(sqlite.HookRegisterer)
		if !ok {
			return errNoHooks
		}
		hooks.RegisterCommitHook(func() int32 {
			f.committed.Store(true)
			return 0
		})
		hooks.RegisterRollbackHook(func() { f.rolledBack.Store(true) })
		return nil
	})
}

// unwatch ends that, before the connection is used for something else. The driver must not keep
// the functions of a connection that is closed either.
func (f *fate) unwatch(conn *sql.Conn) {
	_ = conn.Raw(func(c any) error {
		if hooks, ok := c.(sqlite.HookRegisterer); ok {
			hooks.RegisterCommitHook(nil)
			hooks.RegisterRollbackHook(nil)
		}
		return nil
	})
}

// get returns what was seen. After a commit and a rollback, a part was committed.
func (f *fate) get() (committed, rolledBack bool) {
	return f.committed.Load(), f.rolledBack.Load()
}
