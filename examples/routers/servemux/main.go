// Command servemux protects routes of net/http's own router, each with its own TTL.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"example.com/idempotency"
	"example.com/idempotency/examples/routers/shop"
)

func main() { shop.Serve(routes) }

func routes(guard *idempotency.Guard) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /charges", guard.Handler(http.HandlerFunc(charge)))
	mux.Handle("POST /payouts", guard.With(
		idempotency.WithRequired(true),
		idempotency.WithTTL(7*24*time.Hour),
	).Handler(http.HandlerFunc(charge)))
	return authenticate(mux)
}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := shop.Authenticate(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func charge(w http.ResponseWriter, r *http.Request) {
	var order shop.Order
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	receipt, err := shop.Charge(r.Context(), order)
	switch {
	case errors.Is(err, shop.ErrDeclined):
		http.Error(w, err.Error(), http.StatusPaymentRequired)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", fmt.Sprintf("%s/%d", r.URL.Path, receipt.Run))
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(receipt)
}
