package pgstore

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"example.com/idempotency/store"
)

// JoinTx begins the transaction of a run, as Begin does.
func (s *Store) JoinTx(ctx context.Context, key string, o store.Owner, opts pgx.TxOptions) (store.Transaction, pgx.Tx, error) {
	t, err := s.begin(ctx, key, o, opts)
	if err != nil {
		return nil, nil, err
	}
	return t, &handlerTx{t.tx, t}, nil
}

// Awaits reports whether a call has begun in the background that waits for the lock of a key.
func (s *Store) Awaits(key string) bool {
	_, awaits := s.awaited.Load(key)
	return awaits
}

// A JoinedSQLTx is the transaction of a run through database/sql.
type JoinedSQLTx struct{ *joinedSQLTx }

// JoinSQLTx begins the transaction of a run, as InSQLTx does.
func (s *Store) JoinSQLTx(ctx context.Context, db *sql.DB, key string, o store.Owner, opts *sql.TxOptions) (JoinedSQLTx, error) {
	t, err := s.beginSQL(ctx, db, key, o, opts)
	return JoinedSQLTx{t}, err
}

// OpenDeafDB returns a database as OpenDB does, whose connections are never those of claims.
func OpenDeafDB(pool *pgxpool.Pool) *sql.DB {
	db := sql.OpenDB(deafConnector{sqlConnector{stdlib.GetPoolConnector(pool), pool}})
	db.SetMaxIdleConns(0)
	return db
}

type deafConnector struct{ sqlConnector }

func (c deafConnector) Connect(context.Context) (driver.Conn, error) {
	return c.sqlConnector.Connect(context.Background())
}

// ExecContext runs a statement of the function.
func (t JoinedSQLTx) ExecContext(ctx context.Context, query string) error {
	_, err := t.tx.ExecContext(ctx, query)
	return err
}

// Ready says that the function has succeeded.
func (t JoinedSQLTx) Ready(ctx context.Context) error { return t.ready(ctx) }

// GiveUp says that the function has failed.
func (t JoinedSQLTx) GiveUp(ctx context.Context) error {
	t.leave(ctx)
	return nil
}

// TryStep makes one try of a step, as StepTx does.
func (s *Store) TryStep(
	ctx context.Context, opts pgx.TxOptions, r store.StepRecord, work func(context.Context, pgx.Tx) ([]byte, error),
) error {
	return s.stepIn(ctx, opts, r, work)
}

// Forget makes a transaction of JoinTx forget that the server has told its mark, as behind a pooler that does
// not pass that on.
func Forget(tx pgx.Tx) { tx.(*handlerTx).joined.tx.told = false }

// Remember makes a store remember a key, whether there is a record or not.
func Remember(s *Store, key string) { s.met.add(key) }

// Code returns the code of an error of the server.
func Code(err error) string { return code(err) }

// Version is that of the table as this package makes it.
func Version() int { return version() }

// Meet returns the newest origin after a server has told its own, and whether that is behind.
func Meet(newestSystem, newestTimeline, system, timeline string) (afterSystem, afterTimeline string, behind bool) {
	newest, o := origin{newestSystem, newestTimeline}, origin{system, timeline}
	after := o.after(newest)
	return after.system, after.timeline, o.isBehind(newest)
}
