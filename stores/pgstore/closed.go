package pgstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

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
