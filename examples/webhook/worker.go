package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/queue"
	"example.com/idempotency/webhook"
)

// This file is the half that senders do not wait for: it takes events from the inbox, and handles
// each once.

// An event is the body of a delivery.
type event struct {
	ID      string `json:"id"`
	Pending int    `json:"pending_webhooks"` // differs between deliveries of one event
	Amount  int    `json:"amount"`
	Plan    string `json:"plan"`
	Version int    `json:"version"` // rises with each event of a sender
}

// A worker handles the events of the inbox.
type worker struct {
	db    *database
	guard *idempotency.Guard
	// between is called between the two effects of an event. Tests crash there.
	between func(name string)

	mu   sync.Mutex
	mail map[string]string // receipts by the key that was sent with them; the mail service does that
}

func newWorker(db *database) (*worker, error) {
	// The TTL is longer than that of every sender. An event that fails five times, or kills its
	// process five times, is parked. Messages have scopes of their own: the guard's does not matter.
	guard, err := idempotency.New(db.records, webhook.Scope,
		idempotency.WithTTL(40*24*time.Hour), idempotency.WithRecovery(idempotency.HoldAfter(5)))
	if err != nil {
		return nil, err
	}
	return &worker{db: db, guard: guard, mail: make(map[string]string), between: func(string) {}}, nil
}

// run handles events until ctx is done. It looks at the inbox when something has come, and each
// second: an event that could not be handled is tried again then.
func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil {
		change := w.db.change()
		w.pass(ctx)
		select {
		case <-change:
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// pass goes through the inbox once.
func (w *worker) pass(ctx context.Context) {
	for _, r := range w.db.pending() {
		message := queue.Message{Queue: "inbox of " + r.sender, ID: r.name}
		todo, err := queue.Handle(ctx, w.guard, message, func(ctx context.Context) error { return w.handle(ctx, r) })
		switch todo {
		case queue.Ack:
			w.db.set(r, done, nil)
		case queue.Park:
			w.db.set(r, parked, err)
		case queue.Retry: // it stays where it is
		}
	}
	for _, e := range endpoints {
		w.db.purge(e.sender.Name, time.Now().Add(-e.sender.TTL))
	}
}

// handle runs once for each event, or again after it has failed. The receipt is a step, and is not
// sent again. The account changes once, because the ID of the run is unique.
func (w *worker) handle(ctx context.Context, r row) error {
	var e event
	if err := json.Unmarshal(r.body, &e); err != nil {
		return idempotency.Permanent(fmt.Errorf("event %s of %s: %w", r.name, r.sender, err))
	}
	_, err := idempotency.Step(ctx, "receipt", func(ctx context.Context) (bool, error) {
		return true, w.send(idempotency.DeriveKey(ctx, "receipt"), r.sender+" "+r.name)
	})
	if err != nil {
		return err
	}
	w.between(r.name)
	run, ok := idempotency.FromContext(ctx)
	if !ok {
		return errors.New("not behind a guard")
	}
	w.db.apply(run.ID(), r.sender, e)
	return nil
}

// send is the mail service, which honours idempotency keys.
func (w *worker) send(key, receipt string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail[key] = receipt
	return nil
}

// receipts is how many receipts were sent for a sender.
func (w *worker) receipts(sender string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, receipt := range w.mail {
		if strings.HasPrefix(receipt, sender+" ") {
			n++
		}
	}
	return n
}
