package pgstore_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"example.com/idempotency/stores/pgstore"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// The handlers of the examples, which need a server, do what the examples say.
func TestExamples(t *testing.T) {
	t.Parallel()
	pool := pgtest.Shared(t).Pool(t)
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, item text, quantity bigint);
		CREATE TABLE payments (id text PRIMARY KEY);
		CREATE TABLE stock AS SELECT 'tea' AS item, 5::bigint AS quantity`)
	require.NoError(t, err)
	store, _ := newStore(t, pool)
	db := pgstore.OpenDB(pool)
	t.Cleanup(func() { _ = db.Close() })
	number := func(sql string) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	serve := func(h http.Handler, opts ...idempotency.Option) *guardtest.Server {
		return guardtest.ServeHTTP1(t, guardtest.NewGuard(t, store, opts...).Handler(h))
	}

	orders := serve(&createOrder{store}, idempotency.WithTransaction(true))
	first := orders.Do(t, guardtest.Call{Key: "order", Body: `{"item":"tea","quantity":2}`})
	require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
	require.JSONEq(t, `{"id":1,"item":"tea","quantity":2}`, string(first.Body))
	guardtest.RequireReplay(t, first, orders.Do(t, guardtest.Call{Key: "order", Body: `{"item":"tea","quantity":2}`}))
	require.Equal(t, 1, number("SELECT count(*) FROM orders"))

	payments := serve(&pay{store, db}, idempotency.WithTransaction(true))
	first = payments.Do(t, guardtest.Call{Key: "payment"})
	require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
	guardtest.RequireReplay(t, first, payments.Do(t, guardtest.Call{Key: "payment"}))
	require.Equal(t, 1, number("SELECT count(*) FROM payments"))

	var keys []string
	away := errors.New("the provider is away")
	checkouts := serve(&checkout{store, func(_ context.Context, key string) error {
		keys = append(keys, key)
		err := away
		away = nil
		return err
	}})
	require.Equal(t, http.StatusBadGateway, checkouts.Do(t, guardtest.Call{Key: "checkout"}).Status)
	require.Equal(t, http.StatusCreated, checkouts.Do(t, guardtest.Call{Key: "checkout"}).Status)
	require.Equal(t, 4, number("SELECT quantity FROM stock"))
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
}
