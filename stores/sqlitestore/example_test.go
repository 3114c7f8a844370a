package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"example.com/idempotency"
	"example.com/idempotency/stores/sqlitestore"
)

// An order and the answer to its request are committed together. The retry of the request makes no
// second order, also if the process has died in between.
func Example() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "orders.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	// Outside of a run, InTx is an ordinary transaction.
	if err := store.InTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)`)
		return err
	}); err != nil {
		log.Fatal(err)
	}
	customer := func(*http.Request) (string, error) { return "customer-1", nil } // from your authentication
	guard, err := idempotency.New(store, customer, idempotency.WithTransaction(true))
	if err != nil {
		log.Fatal(err)
	}

	orders := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var id int64
		err := store.InTx(r.Context(), func(tx *sql.Tx) error {
			return tx.QueryRowContext(r.Context(), `INSERT INTO orders (item) VALUES ('tea') RETURNING id`).Scan(&id)
		})
		if err != nil { // rolled back: a retry runs again
			http.Error(w, "the order was not made", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusCreated) // sent after the commit
		_, _ = fmt.Fprintf(w, "order %d", id)
	}))
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/orders", http.NoBody)
		r.Header.Set("Idempotency-Key", "order-1")
		w := httptest.NewRecorder()
		orders.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body, "replayed:", w.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// 201 order 1 replayed: false
	// 201 order 1 replayed: true
}
