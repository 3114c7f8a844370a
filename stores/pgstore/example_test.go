package pgstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/idempotency"
	"example.com/idempotency/stores/pgstore"
)

// An order service whose orders are committed together with its answers: a retry finds both or
// neither, whatever dies in between. The tests run the handler on a real server.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, ordersTable); err != nil {
		log.Fatal(err)
	}
	if err := pgstore.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	go sweep(ctx, store)
	// In your service, the scope is the customer that your authentication has verified.
	guard, err := idempotency.New(store, idempotency.SharedScope, idempotency.WithTransaction(true))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              "127.0.0.1:8080",
		Handler:           guard.Handler(&createOrder{store}),
		ReadHeaderTimeout: 5 * time.Second,
	}
	go func() {
		defer stop() // if it cannot listen
		log.Println(server.ListenAndServe())
	}()
	<-ctx.Done()
	if err := shutdown(server, guard); err != nil {
		log.Println(err)
	}
}

// shutdown ends server and guard together. Close the store when it has returned.
func shutdown(server *http.Server, guard *idempotency.Guard) error {
	ctx, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- guard.Shutdown(ctx) }()
	return errors.Join(server.Shutdown(ctx), <-recorded)
}

const ordersTable = `CREATE TABLE IF NOT EXISTS orders (
	id bigserial PRIMARY KEY, item text NOT NULL, quantity bigint NOT NULL CHECK (quantity > 0))`

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
	if err != nil {
		status := http.StatusServiceUnavailable // rolled back: a retry runs again
		if broken, ok := errors.AsType[*pgconn.PgError](err); ok && strings.HasPrefix(broken.Code, "23") {
			status = http.StatusUnprocessableEntity // a constraint: recorded, and a retry gets it again
		}
		http.Error(w, "the order was not made", status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
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
