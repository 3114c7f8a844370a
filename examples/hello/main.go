// Command hello is the program of the README: one route that is safe to retry.
package main

import (
	"fmt"
	"log"
	"net/http"

	"example.com/idempotency"
)

func main() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), idempotency.SharedScope)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /charges", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log.Println("charging the card")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintln(w, "charged")
	})))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
}
