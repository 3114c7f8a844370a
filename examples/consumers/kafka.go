package consumers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// Kafka handles the records of a consumer group until ctx ends. Then it finishes the record in hand, and
// begins no other. The client must have kgo.DisableAutoCommit and kgo.BlockRebalanceOnPoll: an offset is
// committed after its record has been handled, and a partition is not taken away meanwhile, unless the
// records of a poll take longer than kgo.RebalanceTimeout. Then the group goes on without this consumer,
// which comes back; what it has handled is delivered again, and meets its record.
//
// Kafka has no answer for one record: an offset stands for all before it. So a record that must be
// repeated is repeated here, and those behind it in its partition wait. Give the
// guard the recovery idempotency.HoldAfter, so that this ends.
//
// Each group of a topic handles a record once, so the name of the group counts.
func Kafka(ctx context.Context, client *kgo.Client, guard *idempotency.Guard, handle func(context.Context, *kgo.Record) error,
	parked func(*kgo.Record, error) error,
) error {
	group, _ := client.OptValue(kgo.ConsumerGroup).(string)
	for {
		fetches := client.PollRecords(ctx, pollRecords)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := fetches.Err0(); err != nil && !groupMoved(err) {
			return err
		}
		for _, r := range fetches.Records() {
			if err := handleRecord(ctx, guard, group, r, handle, parked); err != nil {
				return err
			}
			if err := client.CommitRecords(context.WithoutCancel(ctx), r); err != nil && !groupMoved(err) {
				return err
			}
		}
		client.AllowRebalance()
	}
}

// pollRecords is how many records are handled while the group waits with a rebalance.
const pollRecords = 10

// groupMoved reports whether the group has gone on without this consumer, which joins it again. It may
// keep its partitions, and then it does not fetch again: so the records in hand are handled to the end,
// and a later commit stands for them.
func groupMoved(err error) bool {
	_, lost := errors.AsType[*kgo.ErrGroupSession](err)
	return lost || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.RebalanceInProgress)
}

func handleRecord(ctx context.Context, guard *idempotency.Guard, group string, r *kgo.Record, handle func(context.Context, *kgo.Record) error,
	parked func(*kgo.Record, error) error,
) error {
	run := context.WithoutCancel(ctx)
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		todo, err := queue.Handle(run, guard, messageOf(group, r), func(ctx context.Context) error { return handle(ctx, r) })
		switch todo {
		case queue.Ack:
			return nil
		case queue.Park:
			return parked(r, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return context.Cause(ctx)
}

// messageOf names a record by the ID that its sender has given it, or else by where it is. A producer
// that sends a message twice makes two records of it, which only the sender's ID shows to be one.
func messageOf(group string, r *kgo.Record) queue.Message {
	m := queue.Message{Queue: "kafka:" + r.Topic + "/" + group, ID: fmt.Sprintf("%d:%d", r.Partition, r.Offset), Payload: r.Value}
	for _, h := range r.Headers {
		if h.Key == "message-id" {
			m.ID = string(h.Value)
		}
	}
	return m
}
