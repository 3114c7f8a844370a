// Command memory is the first program of docs/tutorials/first-hour.md.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"

	"example.com/idempotency"
)

var orders atomic.Int64 // made so far

func createOrder(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "order", orders.Add(1))
}

func main() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope, idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /orders", guard.Handler(http.HandlerFunc(createOrder)))
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
