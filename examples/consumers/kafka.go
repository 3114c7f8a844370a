package consumers

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// Kafka handles the records of a consumer group until ctx ends. The client must have
// kgo.DisableAutoCommit and kgo.BlockRebalanceOnPoll: an offset is committed after its record has been
// handled, and a partition is not taken away meanwhile.
//
// Kafka has no answer for one record: an offset stands for all before it. So a record that must be
// repeated is repeated here, and those behind it in its partition wait. Set
// idempotency.WithMaxAttempts, so that this ends.
func Kafka(ctx context.Context, client *kgo.Client, guard *idempotency.Guard, handle func(context.Context, *kgo.Record) error,
	parked func(*kgo.Record, error) error,
) error {
	for {
		fetches := client.PollRecords(ctx, 100)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if err := handleRecord(ctx, guard, r, handle, parked); err != nil {
				return err
			}
			if err := client.CommitRecords(ctx, r); err != nil {
				return err
			}
		}
		client.AllowRebalance()
	}
}

func handleRecord(ctx context.Context, guard *idempotency.Guard, r *kgo.Record, handle func(context.Context, *kgo.Record) error,
	parked func(*kgo.Record, error) error,
) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		todo, err := queue.Handle(ctx, guard, messageOf(r), func(ctx context.Context) error { return handle(ctx, r) })
		switch todo {
		case queue.Ack:
			return nil
		case queue.Park:
			return parked(r, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// messageOf names a record by the ID that its sender has given it, or else by where it is. A producer
// that sends a message twice makes two records of it, which only the sender's ID shows to be one.
func messageOf(r *kgo.Record) queue.Message {
	m := queue.Message{Queue: "kafka:" + r.Topic, ID: fmt.Sprintf("%d:%d", r.Partition, r.Offset), Payload: r.Value}
	for _, h := range r.Headers {
		if h.Key == "message-id" {
			m.ID = string(h.Value)
		}
	}
	return m
}
