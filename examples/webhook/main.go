// Command webhook receives webhooks from three providers. They deliver their events more than
// once and in any order, and the receiver applies each event once.
//
//	go run ./examples/webhook
//
// It starts the receiver, delivers the events of the providers to it, and prints the result.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http/httptest"
	"os"
)

func main() {
	if err := run(context.Background(), os.Stdout, rand.Uint64()); err != nil {
		log.Fatal(err)
	}
}

// run delivers a hundred events of each provider. The seed decides their order.
func run(ctx context.Context, out io.Writer, seed uint64) error {
	receiver, err := newReceiver()
	if err != nil {
		return err
	}
	server := httptest.NewServer(receiver)
	defer server.Close()
	for _, e := range endpoints {
		sent, err := deliver(ctx, server.URL, e, 100, rand.New(rand.NewPCG(seed, uint64(len(e.path)))))
		if err != nil {
			return err
		}
		state := receiver.state(e.path)
		fmt.Fprintf(out, "%s: %d events, %d deliveries, %d applied, balance %d, at version %d\n",
			e.path, 100, sent, state.applied, state.balance, state.version)
	}
	return nil
}
