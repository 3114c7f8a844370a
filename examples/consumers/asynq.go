package consumers

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// Asynq returns a middleware for the tasks of asynq. A task is repeated while its handler returns an
// error; asynq.SkipRetry puts it into the archive, where it stays for somebody to look.
//
// The ID of a task names it: give it one with asynq.TaskID when you enqueue it, because a task that is
// enqueued twice has two IDs otherwise. A new ID for new work: a task with a known ID is the same one
// until the TTL of the guard ends, also when asynq has forgotten it. So a scheduled task has its period
// in its ID. As in asynq itself, the same ID in another queue is another task: two services that both
// handle what has happened have a queue each.
//
// Give the asynq.Config of the server AsynqFailed as its IsFailure.
func Asynq(guard *idempotency.Guard) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			id, ok := asynq.GetTaskID(ctx)
			if !ok {
				return errors.Join(queue.ErrNoID, asynq.SkipRetry)
			}
			name, _ := asynq.GetQueueName(ctx)
			todo, err := queue.Handle(ctx, guard, queue.Message{Queue: "asynq:" + name + "/" + t.Type(), ID: id, Payload: t.Payload()},
				func(ctx context.Context) error { return next.ProcessTask(ctx, t) })
			switch todo {
			case queue.Ack:
				return nil
			case queue.Park:
				return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
			default:
				return err
			}
		})
	}
}

// AsynqFailed tells asynq which errors count against the MaxRetry of a task. Those of a delivery that
// finds the task in another worker's hands, as after a pause of that one, or a guard that shuts down, do
// not: otherwise asynq would archive a task that nobody has finished.
func AsynqFailed(err error) bool {
	return !errors.Is(err, idempotency.ErrInFlight) && !errors.Is(err, idempotency.ErrShutdown)
}
