// Command chi protects routes of a chi router, each with its own TTL.
//
// [idempotency.Guard.Handler] is a chi middleware and needs no adapter.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"example.com/idempotency"
	"example.com/idempotency/examples/routers/shop"
)

func main() { shop.Serve(routes) }

func routes(guard *idempotency.Guard) http.Handler {
	r := chi.NewRouter()
	// Outside the guard: authentication, and middleware that must see every answer,
	// including replays.
	r.Use(middleware.Recoverer, authenticate)

	r.With(guard.Handler).Post("/charges", charge)
	r.With(guard.With(
		idempotency.WithRequired(true),
		idempotency.WithTTL(7*24*time.Hour),
	).Handler).Post("/payouts", charge)
	return r
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
