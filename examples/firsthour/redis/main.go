// Command redis is the second program of docs/tutorials/first-hour.md.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"example.com/idempotency"
	"github.com/redis/go-redis/v9"
)

func createOrder(w http.ResponseWriter, r *http.Request) {
	run, _ := idempotency.FromContext(r.Context())
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "an order for", run.Key().Scope, "by", os.Args[1])
}

func main() {
	store := idempotency.NewRedisStore(redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")}))
	if err := store.Check(context.Background()); err != nil {
		log.Fatal(err)
	}
	guard, err := idempotency.New(store, customer, idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /orders", guard.Handler(http.HandlerFunc(createOrder)))
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
