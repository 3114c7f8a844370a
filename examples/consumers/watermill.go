package consumers

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// Watermill returns a middleware for a router of Watermill. A message is acknowledged when its
// handler returns no error, and delivered again otherwise; parked gets those for which that is of no
// use, a publisher of a dead-letter topic for example.
//
// The UUID of a message names it: its publisher makes it, and keeps it when it publishes the message
// again. Messages that a handler publishes are sent by the delivery that ran it, and by no other.
func Watermill(guard *idempotency.Guard, topic string, parked func(*message.Message, error) error) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) (produced []*message.Message, err error) {
			ctx := m.Context()
			todo, err := queue.Handle(ctx, guard, queue.Message{Queue: topic, ID: m.UUID, Payload: m.Payload},
				func(ctx context.Context) (err error) {
					m.SetContext(ctx)
					produced, err = next(m)
					return err
				})
			m.SetContext(ctx)
			switch todo {
			case queue.Ack:
				return produced, nil
			case queue.Park:
				return nil, parked(m, err)
			default:
				return nil, err
			}
		}
	}
}
