package db

import "context"

const createOrder = `-- name: CreateOrder :exec
INSERT INTO orders (id, customer, item, quantity) VALUES ($1, $2, $3, $4)`

// CreateOrder inserts an order.
func (q *Queries) CreateOrder(ctx context.Context, arg Order) error {
	_, err := q.db.ExecContext(ctx, createOrder, arg.ID, arg.Customer, arg.Item, arg.Quantity)
	return err
}

const getOrder = `-- name: GetOrder :one
SELECT id, customer, item, quantity FROM orders WHERE id = $1 AND customer = $2`

// GetOrderParams are the parameters of GetOrder.
type GetOrderParams struct{ ID, Customer string }

// GetOrder returns an order of a customer.
func (q *Queries) GetOrder(ctx context.Context, arg GetOrderParams) (Order, error) {
	var o Order
	err := q.db.QueryRowContext(ctx, getOrder, arg.ID, arg.Customer).Scan(&o.ID, &o.Customer, &o.Item, &o.Quantity)
	return o, err
}

const createMessage = `-- name: CreateMessage :exec
INSERT INTO outbox (id, topic, payload, created) VALUES ($1, $2, $3, $4)`

// CreateMessageParams are the parameters of CreateMessage.
type CreateMessageParams struct {
	Message
	Created int64
}

// CreateMessage puts a message into the outbox.
func (q *Queries) CreateMessage(ctx context.Context, arg CreateMessageParams) error {
	_, err := q.db.ExecContext(ctx, createMessage, arg.ID, arg.Topic, arg.Payload, arg.Created)
	return err
}

const listUnpublished = `-- name: ListUnpublished :many
SELECT id, topic, payload FROM outbox WHERE published IS NULL ORDER BY created, id LIMIT $1`

// ListUnpublished returns the oldest messages of the outbox.
func (q *Queries) ListUnpublished(ctx context.Context, limit int64) ([]Message, error) {
	rows, err := q.db.QueryContext(ctx, listUnpublished, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var messages []Message
	for rows.Next() {
		var m Message
		if err := rows.Scan(&m.ID, &m.Topic, &m.Payload); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
	return messages, rows.Err()
}

const markPublished = `-- name: MarkPublished :exec
UPDATE outbox SET published = $2 WHERE id = $1`

// MarkPublishedParams are the parameters of MarkPublished.
type MarkPublishedParams struct {
	ID        string
	Published int64
}

// MarkPublished takes a message out of the list of those that are not published.
func (q *Queries) MarkPublished(ctx context.Context, arg MarkPublishedParams) error {
	_, err := q.db.ExecContext(ctx, markPublished, arg.ID, arg.Published)
	return err
}
