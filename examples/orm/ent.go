package orm

import (
	"context"
	"database/sql"
	"errors"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"

	"example.com/idempotency/stores/pgstore"
)

// EntShop uses ent.
type EntShop struct {
	Store *pgstore.Store
	DB    *sql.DB
}

// Create gives ent the transaction. With generated code it is
//
//	client := ent.NewClient(ent.Driver(EntDriver(tx)))
//
// and then client.Order.Create(). This example calls what the generated code calls.
func (s *EntShop) Create(ctx context.Context, o Order, l Line) error {
	return s.Store.InSQLTx(ctx, s.DB, nil, func(tx *sql.Tx) error {
		return createWithEnt(ctx, EntDriver(tx), o, l)
	})
}

// EntDriver returns a driver whose statements belong to tx.
func EntDriver(tx entsql.ExecQuerier) dialect.Driver { return entDriver{entsql.Conn{ExecQuerier: tx}} }

type entDriver struct{ entsql.Conn }

func (entDriver) Dialect() string { return dialect.Postgres }

// Close does nothing: the store ends the transaction.
func (entDriver) Close() error { return nil }

// Tx is for generated code, which writes edges and the like in a transaction, and for client.Tx. It
// makes a savepoint.
func (d entDriver) Tx(ctx context.Context) (dialect.Tx, error) {
	return entSavepoint{d, ctx}, d.Exec(ctx, "SAVEPOINT ent", []any{}, nil)
}

type entSavepoint struct {
	entDriver
	ctx context.Context // Commit and Rollback take none
}

func (s entSavepoint) Commit() error { return s.Exec(s.ctx, "RELEASE ent", []any{}, nil) }

func (s entSavepoint) Rollback() error {
	return errors.Join(s.Exec(s.ctx, "ROLLBACK TO ent", []any{}, nil), s.Commit())
}

// CreateTooEarly begins a transaction of ent.
func (s *EntShop) CreateTooEarly(ctx context.Context, o Order, l Line) error {
	tx, err := entsql.OpenDB(dialect.Postgres, s.DB).Tx(ctx)
	if err != nil {
		return err
	}
	if err := createWithEnt(ctx, EntDriver(tx.(*entsql.Tx)), o, l); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// createWithEnt is what ent's generated code makes of two calls of Create.
func createWithEnt(ctx context.Context, driver dialect.Driver, o Order, l Line) error {
	text := func(column, value string) *sqlgraph.FieldSpec {
		spec := sqlgraph.NewFieldSpec(column, field.TypeString)
		spec.Value = value
		return spec
	}
	order := sqlgraph.NewCreateSpec("orders", text("id", o.ID))
	order.SetField("key", field.TypeString, o.Key)
	if err := sqlgraph.CreateNode(ctx, driver, order); err != nil {
		return err
	}
	line := sqlgraph.NewCreateSpec("lines", text("id", l.ID))
	line.SetField("order_id", field.TypeString, l.OrderID)
	line.SetField("item", field.TypeString, l.Item)
	line.SetField("quantity", field.TypeInt64, l.Quantity)
	return sqlgraph.CreateNode(ctx, driver, line)
}
