// Command postgres is the third program of docs/tutorials/first-hour.md.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"example.com/idempotency"
	"example.com/idempotency/stores/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type order struct {
	ID       int64  `json:"id"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

type createOrder struct{ store *pgstore.Store }

func (h createOrder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	run, _ := idempotency.FromContext(ctx) // there is one, because the guard requires keys
	err := h.store.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "INSERT INTO orders (customer, item, quantity) VALUES ($1, $2, $3) RETURNING id",
			run.Key().Scope, o.Item, o.Quantity).Scan(&o.ID)
	})
	if err != nil { // rolled back: a retry runs again
		http.Error(w, "the order was not made", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(o) // the guard sends it after the commit
}

func main() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(context.Background(), pool)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := idempotency.New(store, customer, idempotency.WithRequired(true), idempotency.WithTransaction(true))
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /orders", guard.Handler(createOrder{store}))
	log.Fatal(http.ListenAndServe(os.Args[1], nil))
}
