package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency/examples/orders/db"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/sqlitestore"
)

// A database has the rows of the service and the records of its guard.
type database struct {
	store store.TxStore
	// read is for what is only looked at.
	read db.DBTX
	// inTx runs a function in a transaction. In a run of the guard it is committed with the answer,
	// and elsewhere before inTx returns.
	inTx func(ctx context.Context, f func(tx db.DBTX) error) error
	// sweep removes expired records.
	sweep func(ctx context.Context, n int) (int64, error)
	close func() error
}

// openSQLite opens a file in a directory. It needs no server.
func openSQLite(ctx context.Context, dir string, oneCommit bool) (*database, error) {
	path := filepath.Join(dir, "orders.db")
	var opts []sqlitestore.Option
	if oneCommit {
		opts = append(opts, sqlitestore.WithOneCommit())
	}
	st, err := sqlitestore.Open(ctx, path, opts...)
	if err != nil {
		return nil, err
	}
	// Readers do not wait for the one writer, which the store has. Only somebody who opens the file
	// after a crash keeps them waiting.
	name := url.URL{Scheme: "file", Opaque: path, RawQuery: "_pragma=busy_timeout(5000)&_pragma=query_only(1)"}
	read, err := sql.Open("sqlite", name.String())
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	d := &database{
		store: st,
		read:  read,
		sweep: st.Sweep,
		close: func() error { return errors.Join(read.Close(), st.Close()) },
	}
	d.inTx = func(ctx context.Context, f func(tx db.DBTX) error) error {
		return st.InTx(ctx, func(tx *sql.Tx) error { return f(tx) })
	}
	return d.migrated(ctx)
}

// openPostgres opens a database that any number of processes may share.
func openPostgres(ctx context.Context, dsn string, oneCommit bool) (*database, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	if err := pgstore.Migrate(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	var opts []pgstore.Option
	if oneCommit {
		opts = append(opts, pgstore.WithOneCommit("")) // at the level of inTx below: that of the database
	}
	st, err := pgstore.New(ctx, pool, opts...)
	if err != nil {
		pool.Close()
		return nil, err
	}
	// The queries are those of database/sql, so the pool is made to look like one.
	conns := pgstore.OpenDB(pool)
	d := &database{
		store: st,
		read:  conns,
		sweep: st.Sweep,
		close: func() error {
			st.Close()
			err := conns.Close()
			pool.Close()
			return err
		},
	}
	d.inTx = func(ctx context.Context, f func(tx db.DBTX) error) error {
		return st.InSQLTx(ctx, conns, nil, func(tx *sql.Tx) error { return f(tx) })
	}
	return d.migrated(ctx)
}

// migrated makes the tables of the service.
func (d *database) migrated(ctx context.Context) (*database, error) {
	err := d.inTx(ctx, func(tx db.DBTX) error {
		_, err := tx.ExecContext(ctx, db.Schema)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tables of the service: %w", err), d.close())
	}
	return d, nil
}
