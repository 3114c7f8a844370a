package pgstore_test

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency"
	"example.com/idempotency/pgstore"
)

// The row of the order and the answer of the request are committed together.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example/orders")
	if err != nil {
		panic(err)
	}
	if err := pgstore.Migrate(ctx, pool); err != nil {
		panic(err)
	}
	store, err := pgstore.New(ctx, pool)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	guard, err := idempotency.New(store, idempotency.SharedScope, idempotency.WithTransaction(true))
	if err != nil {
		panic(err)
	}
	http.Handle("POST /orders", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := store.InTx(r.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), "INSERT INTO orders (item) VALUES ($1)", r.URL.Query().Get("item"))
			return err
		})
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
}
