package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/examples/orders/db"
)

// A broker takes messages. It may get one twice, and tells it from a new one by its ID.
type broker interface {
	publish(ctx context.Context, m db.Message) error
}

// A relay publishes the messages of the outbox. Any number of processes may run one.
//
// It publishes a message with Do, so only one relay does at a time, and the record says that it is
// published. A relay that dies between the publication and the mark in the outbox does not publish
// again. One that dies between the publication and the record does: no middleware can close that
// gap, and the ID of the message lets the broker drop the second one.
type relay struct {
	db     *database
	guard  *idempotency.Guard
	broker broker
	every  time.Duration
	log    *slog.Logger
}

// run looks into the outbox at intervals until ctx ends.
func (r *relay) run(ctx context.Context) {
	every(ctx, r.every, func() {
		if err := r.publishAll(ctx); err != nil && ctx.Err() == nil {
			r.log.ErrorContext(ctx, "outbox not published", "error", err)
		}
	})
}

// publishAll publishes what is in the outbox, oldest first. One that fails does not keep the others
// waiting, so messages may overtake each other.
func (r *relay) publishAll(ctx context.Context) error {
	messages, err := db.New(r.db.read).ListUnpublished(ctx, 100)
	errs := []error{err}
	for _, m := range messages {
		errs = append(errs, r.publish(ctx, m))
	}
	return errors.Join(errs...)
}

func (r *relay) publish(ctx context.Context, m db.Message) error {
	key := idempotency.Key{Scope: "\x00outbox", Value: m.ID} // no customer can be called that
	_, _, err := idempotency.Do(ctx, r.guard, key, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.broker.publish(ctx, m)
	})
	if errors.Is(err, idempotency.ErrInFlight) {
		return nil // another relay has it; or had it and died, and then its lease ends
	}
	if err != nil {
		return err
	}
	return r.db.inTx(ctx, func(tx db.DBTX) error {
		return db.New(tx).MarkPublished(ctx, db.MarkPublishedParams{ID: m.ID, Published: time.Now().UnixMicro()})
	})
}

// every calls f now and at intervals until ctx ends.
func every(ctx context.Context, d time.Duration, f func()) {
	ticker := time.NewTicker(d)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// A fileBroker pretends to be a broker: it appends each message that it gets to a file. The test counts
// those that it gets twice.
type fileBroker struct{ file *os.File }

func openBroker(path string) (*fileBroker, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &fileBroker{file}, err
}

func (b *fileBroker) publish(_ context.Context, m db.Message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = b.file.Write(append(line, '\n'))
	return err
}
