package orm

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency/stores/pgstore"
)

// SQLCShop uses what sqlc generates for pgx. With sqlc's code for database/sql it is the same with
// InSQLTx; the order service beside this module does that.
type SQLCShop struct {
	Store *pgstore.Store
	Pool  *pgxpool.Pool
}

// Create gives sqlc's queries the transaction.
func (s *SQLCShop) Create(ctx context.Context, o Order, l Line) error {
	return s.Store.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error { return NewQueries(tx).create(ctx, o, l) })
}

// CreateTooEarly begins a transaction of pgx.
func (s *SQLCShop) CreateTooEarly(ctx context.Context, o Order, l Line) error {
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error { return NewQueries(tx).create(ctx, o, l) })
}

func (q *Queries) create(ctx context.Context, o Order, l Line) error {
	if err := q.CreateOrder(ctx, o); err != nil {
		return err
	}
	return q.CreateLine(ctx, l)
}

// The rest of the file has the shape of sqlc's code.

// A DBTX is a pool, a connection or a transaction.
type DBTX interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Queries runs the queries on a DBTX.
type Queries struct{ db DBTX }

// NewQueries returns the queries of a DBTX. In sqlc's code it is called New.
func NewQueries(db DBTX) *Queries { return &Queries{db: db} }

const createOrder = `-- name: CreateOrder :exec
INSERT INTO orders (id, key) VALUES ($1, $2)`

// CreateOrder inserts an order.
func (q *Queries) CreateOrder(ctx context.Context, arg Order) error {
	_, err := q.db.Exec(ctx, createOrder, arg.ID, arg.Key)
	return err
}

const createLine = `-- name: CreateLine :exec
INSERT INTO lines (id, order_id, item, quantity) VALUES ($1, $2, $3, $4)`

// CreateLine inserts a line.
func (q *Queries) CreateLine(ctx context.Context, arg Line) error {
	_, err := q.db.Exec(ctx, createLine, arg.ID, arg.OrderID, arg.Item, arg.Quantity)
	return err
}
