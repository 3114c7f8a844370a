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
// again. The router publishes what a handler returns after the run is recorded, so it may fail to, or
// die. Therefore the messages are recorded too, and each delivery publishes them, with the same UUIDs.
//
// Each handler of a topic handles a message once, so the name of the handler counts. Handlers of two
// services that share a store need two names.
func Watermill(guard *idempotency.Guard, parked func(*message.Message, error) error) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			ctx := m.Context()
			defer m.SetContext(ctx)
			run := context.WithoutCancel(ctx) // Router.Close does not cut the message in hand
			sent, todo, err := queue.HandleValue(run, guard, queue.Message{Queue: queueOf(ctx), ID: m.UUID, Payload: m.Payload},
				func(ctx context.Context) ([]published, error) {
					m.SetContext(ctx)
					produced, err := next(m)
					return record(produced), err
				})
			switch todo {
			case queue.Ack:
				return produce(sent), nil
			case queue.Park:
				return nil, parked(m, err)
			default:
				return nil, err
			}
		}
	}
}

// queueOf names topic and handler, as the router has put them into the context of a message. Outside a
// router there are none: without a name, package queue refuses to run anything.
func queueOf(ctx context.Context) string {
	handler := message.HandlerNameFromCtx(ctx)
	if handler == "" {
		return ""
	}
	return "watermill:" + message.SubscribeTopicFromCtx(ctx) + "/" + handler
}

// A published message is what is recorded of a message that a handler publishes.
type published struct {
	UUID     string            `json:"uuid"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Payload  []byte            `json:"payload,omitempty"`
}

func record(produced []*message.Message) []published {
	sent := make([]published, len(produced))
	for i, m := range produced {
		sent[i] = published{m.UUID, m.Metadata, m.Payload}
	}
	return sent
}

func produce(sent []published) []*message.Message {
	produced := make([]*message.Message, len(sent))
	for i, s := range sent {
		produced[i] = message.NewMessage(s.UUID, s.Payload)
		for name, value := range s.Metadata {
			produced[i].Metadata.Set(name, value)
		}
	}
	return produced
}
