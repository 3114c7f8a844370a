package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// JetStream returns the handler of a consumer of NATS JetStream. The consumer needs explicit
// acknowledgements, and an AckWait that is longer than the lease of the guard: a message whose consumer
// has died is delivered again when its claim can be taken over. A run may take longer than that: a
// delivery that meets it is put off, but counts, so MaxDeliver must leave room for such deliveries.
//
// When ctx ends, no further message is begun, and those in hand are finished. The sender's Nats-Msg-Id
// names the message, or else its place in the stream, which is the same in each delivery. Each consumer
// of a stream handles the message once, so the name of the consumer counts: give it a durable one.
func JetStream(ctx context.Context, guard *idempotency.Guard, handle func(context.Context, jetstream.Msg) error,
	parked func(jetstream.Msg, error) error,
) jetstream.MessageHandler {
	return func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			_ = m.Term() // no message of a stream
			return
		}
		id := m.Headers().Get(jetstream.MsgIDHeader)
		if id == "" {
			id = fmt.Sprintf("seq:%d", meta.Sequence.Stream)
		}
		if ctx.Err() != nil {
			_ = m.Nak()
			return
		}
		ctx := context.WithoutCancel(ctx)
		todo, err := queue.Handle(ctx, guard, queue.Message{Queue: "jetstream:" + meta.Stream + "/" + meta.Consumer, ID: id, Payload: m.Data()},
			func(ctx context.Context) error { return handle(ctx, m) })
		if todo == queue.Park && parked(m, err) != nil {
			todo = queue.Retry
		}
		// If one of these does not arrive, the message is delivered again, and meets its record.
		switch todo {
		case queue.Ack:
			_ = m.DoubleAck(ctx)
		case queue.Park:
			_ = m.Term()
		default:
			_ = m.NakWithDelay(time.Second)
		}
	}
}
