// Command quickstart is the smallest program that makes a route safe to retry.
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"

	"example.com/idempotency"
)

func main() {
	guard, err := idempotency.New(idempotency.NewMemoryStore(), tenant, idempotency.WithRequired(true))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(createCharge)))
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}

// tenant tells whose key a request carries. Take it from your authentication.
func tenant(r *http.Request) (string, error) {
	user, _, ok := r.BasicAuth()
	if !ok {
		return "", errors.New("not authenticated")
	}
	return user, nil
}

// createCharge runs once for each key, however often the client retries.
func createCharge(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintln(w, "charged")
}
