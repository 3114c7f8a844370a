package pgstore_test

import (
	"context"
	"net/http"

	"github.com/jackc/pgx/v5"

	"example.com/idempotency"
	"example.com/idempotency/stores/pgstore"
)

// A checkout has an effect elsewhere between two of its own. Each step is committed when it ends, and
// a later attempt goes on where the last one has stopped. The guard needs no WithTransaction.
func ExampleStepTx() {
	var store *pgstore.Store // from New
	http.Handle("POST /checkout", &checkout{store, func(_ context.Context, key string) error {
		return nil // charge, and hand on the key
	}})
}

type checkout struct {
	store  *pgstore.Store
	charge func(ctx context.Context, key string) error
}

func (h *checkout) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	_, err := pgstore.StepTx(ctx, h.store, "reserve", pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) (int64, error) {
		var left int64
		err := tx.QueryRow(ctx, `UPDATE stock SET quantity = quantity - 1 WHERE item = 'tea' RETURNING quantity`).Scan(&left)
		return left, err
	})
	if err == nil {
		_, err = idempotency.Step(ctx, "charge", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, h.charge(ctx, idempotency.DeriveKey(ctx, "charge"))
		})
	}
	if err != nil {
		http.Error(w, "not finished, send it again", http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusCreated)
}
