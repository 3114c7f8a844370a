// Package db has the queries of the order service, in the shape in which sqlc generates them for
// database/sql. It knows nothing of keys and records: what it gets as DBTX decides which
// transaction its statements belong to.
package db

import (
	"context"
	"database/sql"
	_ "embed"
)

// Schema creates the tables that are not there.
//
//go:embed schema.sql
var Schema string

// A DBTX is a *sql.DB or a *sql.Tx.
type DBTX interface { //nolint:revive // sqlc calls it so
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Queries runs the queries on a DBTX.
type Queries struct{ db DBTX }

// New returns the queries of a database or of a transaction.
func New(db DBTX) *Queries { return &Queries{db: db} }
