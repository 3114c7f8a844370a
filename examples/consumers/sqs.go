package consumers

import (
	"context"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// A Delivery is a message of Amazon SQS, or of another queue that hides a message while somebody has
// it in hand.
type Delivery struct {
	ID, Receipt string
	Body        []byte
}

// A Queue is what a loop needs of such a queue: a few lines around its SDK. Wait sets for how long the
// message stays hidden from now on.
type Queue interface {
	Receive(ctx context.Context) ([]Delivery, error)
	Delete(ctx context.Context, receipt string) error
	Wait(ctx context.Context, receipt string, d time.Duration) error
	Park(ctx context.Context, d Delivery, why error) error
}

// SQS handles the messages of a queue until ctx ends. Then it finishes the message in hand, and begins no
// other. Messages of a standard queue keep their ID when they are delivered again. A message that its
// sender sends twice has two, so take the sender's own ID if there is one.
//
// The name is that of the queue. A queue gives each message to one of its consumers: where several
// handle what has happened, each has a queue of its own, behind a topic of SNS, and so a name.
//
// A message may become visible again while it is handled, or waits here for those before it. Then
// another consumer meets its claim or its record. It counts as a delivery all the same, so a
// maxReceiveCount must leave room for that.
func SQS(ctx context.Context, q Queue, name string, guard *idempotency.Guard, handle func(context.Context, Delivery) error) error {
	for {
		deliveries, err := q.Receive(ctx)
		if err != nil {
			return err
		}
		for _, d := range deliveries {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			settle(context.WithoutCancel(ctx), q, name, guard, d, handle)
		}
	}
}

func settle(ctx context.Context, q Queue, name string, guard *idempotency.Guard, d Delivery, handle func(context.Context, Delivery) error) {
	todo, why := queue.Handle(ctx, guard, queue.Message{Queue: "sqs:" + name, ID: d.ID, Payload: d.Body},
		func(ctx context.Context) error { return handle(ctx, d) })
	if todo == queue.Park {
		if err := q.Park(ctx, d, why); err != nil {
			todo = queue.Retry
		}
	}
	// An error here leaves the message to the queue, which delivers it again.
	if todo == queue.Retry {
		_ = q.Wait(ctx, d.Receipt, time.Second)
	} else {
		_ = q.Delete(ctx, d.Receipt)
	}
}
