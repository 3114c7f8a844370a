package bench_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/faultproxy"
	"example.com/idempotency/internal/load"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/stores/pgstore"
)

// postgresBatch are the requests of one kind between two of another.
const postgresBatch = 10

// A shop keeps its orders in PostgreSQL. Each request inserts one.
type shop struct{ work load.Work }

// postgresRows are requests that insert a row in a transaction: without protection, with a record of
// its own, and with a record in the same transaction. Each round trip takes longer by the delay.
func postgresRows(t testing.TB, server *pgserver.Server, work load.Work, delay time.Duration) []*row {
	ctx := context.Background()
	dsn := server.DSN
	if delay > 0 {
		behind, err := url.Parse(dsn)
		require.NoError(t, err)
		proxy := faultproxy.New(t, behind.Host)
		proxy.Delay(faultproxy.ToServer, delay)
		behind.Host = proxy.Addr()
		dsn = behind.String()
	}
	pool, err := pgxpool.New(ctx, dsn+"&pool_max_conns=48") // enough for a crowd, of which each holds one
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS orders (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)")
	require.NoError(t, err)
	require.NoError(t, pgstore.Migrate(ctx, pool))
	store := func(opts ...pgstore.Option) *pgstore.Store {
		s, err := pgstore.New(ctx, pool, opts...)
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	usual, async, whole := store(), store(pgstore.WithAsyncClaims()), store(pgstore.WithOneCommit(""))
	s := shop{work}
	inTx := func(ctx context.Context, opts pgx.TxOptions, f func(pgx.Tx) error) error {
		return pgx.BeginTxFunc(ctx, pool, opts, f)
	}
	plain := func() http.Handler { return s.handler(inTx) }
	separate := func() http.Handler { return guarded(usual, s.handler(inTx)) }
	joined := func(store *pgstore.Store) func() http.Handler {
		return func() http.Handler { return guarded(store, s.handler(store.InTx), idempotency.WithTransaction(true)) }
	}
	alone := &row{name: "transaction", prepare: each(work, plain, keyless)}
	apart := &row{name: "record of its own", floor: alone, prepare: each(work, separate, firstRun)}
	rows := []*row{
		alone, apart,
		{name: "joined", floor: alone, prepare: each(work, joined(usual), firstRun)},
		{name: "joined, against a record of its own", floor: apart, prepare: each(work, joined(usual), firstRun)},
		{name: "joined, asynchronous claim", floor: alone, prepare: each(work, joined(async), firstRun)},
		{name: "joined, one commit", floor: alone, prepare: each(work, joined(whole), firstRun)},
		{name: "replay", floor: alone, prepare: each(work, joined(usual), replay)},
	}
	for _, r := range rows {
		r.size, r.each, r.bare = postgresBatch, true, alone
	}
	alone.bare = nil
	return rows
}

// handler inserts an order in a transaction, and answers when it is committed or will be.
func (s shop) handler(transact func(context.Context, pgx.TxOptions, func(pgx.Tx) error) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := transact(r.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), "INSERT INTO orders (body) VALUES ($1)", s.work.In)
			return err
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		s.work.ServeHTTP(w, r)
	})
}
