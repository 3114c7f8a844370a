// Package orm shows how GORM, bun, ent and sqlc write in the transaction that commits with the record
// of a run. There is one file for each: it puts an order and its line into the database in one
// transaction.
//
// All of them get the transaction from the store. Their own ways to run a function in a transaction
// begin another one, which is committed when that function returns. That is before the handler
// has answered, so it is too early: a handler that fails afterwards is run again, and makes a second
// order. The tests show that, too.
package orm

import "context"

// Schema creates the tables of a shop.
const Schema = `
CREATE TABLE orders (id text PRIMARY KEY, key text NOT NULL);
CREATE TABLE lines (
	id       text PRIMARY KEY,
	order_id text NOT NULL REFERENCES orders,
	item     text NOT NULL,
	quantity bigint NOT NULL CHECK (quantity > 0)
);`

// An Order is a row. Key is the idempotency key, by which the tests count.
type Order struct{ ID, Key string }

// A Line is a row. One with a quantity below 1 is refused by the database.
type Line struct {
	ID, OrderID, Item string
	Quantity          int64
}

// A Shop writes orders.
type Shop interface {
	// Create inserts both rows in the transaction of the run, and returns before it is committed.
	Create(ctx context.Context, o Order, l Line) error
	// CreateTooEarly inserts them in a transaction of the library, which is committed when it returns.
	// In a run of a guard with WithTransaction it is a mistake.
	CreateTooEarly(ctx context.Context, o Order, l Line) error
}
