package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency"
	"example.com/idempotency/stores/pgstore"
)

// An order service whose orders are committed together with its answers: a retry finds both or
// neither, whatever dies in between. The tests run the handler on a real server.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	go sweep(ctx, store)
	guard, err := idempotency.New(store, customer, idempotency.WithTransaction(true))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              "127.0.0.1:8080",
		Handler:           guard.Handler(&createOrder{store}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}

// createOrder makes an order. The answer is sent after the commit.
type createOrder struct{ store *pgstore.Store }

func (h *createOrder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order struct {
		ID       int64  `json:"id"`
		Item     string `json:"item"`
		Quantity int64  `json:"quantity"`
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	err := h.store.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `INSERT INTO orders (item, quantity) VALUES ($1, $2) RETURNING id`,
			order.Item, order.Quantity).Scan(&order.ID)
	})
	if err != nil { // rolled back: a retry runs again
		http.Error(w, "the order was not made", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(order)
}

// sweep removes expired records until ctx ends. Nobody sees them, but they take room.
func sweep(ctx context.Context, store *pgstore.Store) {
	const batch = 1000
	for {
		removed, err := store.Sweep(ctx, batch)
		if err != nil && ctx.Err() == nil {
			log.Println("expired records not removed:", err)
		}
		if removed == batch {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Minute):
		}
	}
}

// customer is the scope of a key: the name that your authentication has verified.
func customer(r *http.Request) (string, error) {
	name, ok := r.Context().Value(customerKey{}).(string)
	if !ok {
		return "", errors.New("request was not authenticated")
	}
	return name, nil
}

type customerKey struct{}
