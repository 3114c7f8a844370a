package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"example.com/idempotency"
	"example.com/idempotency/queue"
)

// A message is delivered three times, and shipped once. Another one fails each time, and is put
// aside after two attempts.
func ExampleHandle() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRecovery(idempotency.HoldAfter(2)))
	if err != nil {
		log.Fatal(err)
	}
	ship := func(id string) func(context.Context) error {
		return func(context.Context) error {
			if id == "order-2" {
				return errors.New("no such address")
			}
			fmt.Println("shipping", id)
			return nil
		}
	}
	for _, id := range []string{"order-1", "order-1", "order-1", "order-2", "order-2", "order-2"} {
		todo, err := queue.Handle(context.Background(), guard, queue.Message{Queue: "orders", ID: id}, ship(id))
		fmt.Println(id, todo, err)
	}
	// Output:
	// shipping order-1
	// order-1 ack <nil>
	// order-1 ack <nil>
	// order-1 ack <nil>
	// order-2 retry no such address
	// order-2 retry no such address
	// order-2 park idempotency: outcome of the last run is unknown
}

// A sender counts its deliveries in the message itself.
func ExampleFields() {
	payload := queue.Fields("order", "amount")
	first := payload([]byte(`{"order": 7, "amount": 10.00, "delivery": 1}`))
	again := payload([]byte(`{"delivery": 2, "order": 7, "amount": 10}`))
	fmt.Println(string(first) == string(again))
	// Output: true
}
