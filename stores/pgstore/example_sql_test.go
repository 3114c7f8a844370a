package pgstore_test

import (
	"database/sql"
	"net/http"

	"example.com/idempotency"
	"example.com/idempotency/stores/pgstore"
)

// A service that reaches its database through database/sql, or a library on top of it, gives the
// transaction to its queries.
func ExampleStore_InSQLTx() {
	var store *pgstore.Store // from New
	var db *sql.DB           // of the same database
	http.Handle("POST /payments", &pay{store, db})
}

type pay struct {
	store *pgstore.Store
	db    *sql.DB
}

func (h *pay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		http.Error(w, "an Idempotency-Key is required", http.StatusBadRequest)
		return
	}
	err := h.store.InSQLTx(ctx, h.db, &sql.TxOptions{Isolation: sql.LevelSerializable}, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO payments (id) VALUES ($1)`, op.ID())
		return err
	})
	if err != nil {
		http.Error(w, "the payment was not made", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
