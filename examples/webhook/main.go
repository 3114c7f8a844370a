// Command webhook receives the webhooks of three senders. They deliver their events more than once
// and in any order. The receiver verifies each delivery, puts the event into an inbox and answers;
// workers handle each event of the inbox once.
//
//	go run ./examples/webhook
//
// It starts receiver and workers, delivers events to the receiver, and prints the result.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"sync"
)

func main() {
	if err := run(context.Background(), os.Stdout, rand.Uint64()); err != nil {
		log.Fatal(err)
	}
}

// run delivers a hundred events of each sender. The seed decides their order.
func run(ctx context.Context, out io.Writer, seed uint64) error {
	db := newDatabase()
	receiver, err := newReceiver(db)
	if err != nil {
		return err
	}
	w, err := newWorker(db)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for range 2 { // they take the same events, and handle each once all the same
		workers.Go(func() { w.run(ctx) })
	}
	defer workers.Wait()
	defer stop()

	server := httptest.NewServer(receiver)
	defer server.Close()
	sent := make([]int, len(endpoints))
	for i, e := range endpoints {
		if sent[i], err = deliver(ctx, server.URL, e, 100, rand.New(rand.NewPCG(seed, uint64(i)))); err != nil {
			return err
		}
	}
	if err := db.settled(ctx); err != nil {
		return err
	}
	for i, e := range endpoints {
		a := db.account(e.sender.Name)
		fmt.Fprintf(out, "%s: 100 events, %d deliveries, %d applied, %d receipts, balance %d, %s at version %d\n",
			e.sender.Name, sent[i], a.applied, w.receipts(e.sender.Name), a.balance, a.plan, a.version)
	}
	return nil
}
