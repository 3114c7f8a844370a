package pgstore_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// An update that touches no index is cheap, and leaves nothing for vacuum. It needs room in its page.
func TestMostUpdatesTouchNoIndex(t *testing.T) {
	t.Parallel()
	const clients, runs = 4, 150 // of each
	pool := pgtest.Shared(t).Pool(t)
	store, table := newStore(t, pool)
	answer := bytes.Repeat([]byte("x"), 1024)
	guard := guardtest.NewGuard(t, store, idempotency.WithTransaction(true))
	server := guardtest.ServeRecorder(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := store.InTx(r.Context(), pgx.TxOptions{}, func(pgx.Tx) error { return nil }); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(answer)
	})))
	guardtest.Together(clients, func(c int) {
		for i := range runs {
			got, err := server.Try(context.Background(), guardtest.Call{Key: fmt.Sprintf("%d-%d", c, i)})
			if err != nil || got.Status != http.StatusOK {
				t.Errorf("%v: %+v", err, got)
				return
			}
		}
	})
	// A connection tells what it has done when it is closed. Its process ends a moment later.
	store.Close()
	pool.Close()
	var updates, hot, bytes int
	stats := pgtest.Shared(t).Pool(t)
	require.Eventually(t, func() bool {
		err := stats.QueryRow(t.Context(),
			`SELECT n_tup_upd, n_tup_hot_upd, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE relname = $1`, table).Scan(&updates, &hot, &bytes)
		return err == nil && updates == clients*runs
	}, 30*time.Second, 50*time.Millisecond, "updates counted")
	t.Logf("%d of %d updates touched no index; %d bytes for each record", hot, updates, bytes/(clients*runs))
	require.GreaterOrEqual(t, hot, updates*3/4)
}

// The role of a service cannot make tables, and needs nothing else on that of the store.
func TestRoleNeedsFourRights(t *testing.T) {
	t.Parallel()
	admin := pgtest.Shared(t).Pool(t)
	_, table := newStore(t, admin)
	_, err := admin.Exec(t.Context(), `CREATE TABLE clerk_rows (id text); CREATE ROLE clerk LOGIN;
		GRANT INSERT ON clerk_rows TO clerk; GRANT SELECT, INSERT, UPDATE, DELETE ON `+table+` TO clerk`)
	require.NoError(t, err)
	config := admin.Config()
	config.ConnConfig.User = "clerk"
	pool := pgtest.PoolOf(t, config)
	require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.WithTable(table))) // it is there
	store := openStore(t, pool, pgstore.WithTable(table))
	require.ErrorContains(t, store.KeepsTags(), "GRANT SELECT, INSERT, UPDATE, DELETE ON ", "it needs four more for tags")

	guard := guardtest.NewGuard(t, store, idempotency.WithTransaction(true), idempotency.WithWait(10*time.Second))
	began, goOn := make(chan struct{}), make(chan struct{})
	server := guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		<-goOn
		if err := store.InTx(r.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
			_, err := tx.Exec(r.Context(), "INSERT INTO clerk_rows VALUES ('x')")
			return err
		}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})))
	first := make(chan guardtest.Reply, 1)
	go func() {
		got, _ := server.Try(context.Background(), guardtest.Call{Key: "k"})
		first <- got
	}()
	<-began
	_, stop, err := store.Watch(t.Context(), "any") // LISTEN
	require.NoError(t, err)
	stop()
	close(goOn)
	guardtest.RequireReplay(t, <-first, server.Do(t, guardtest.Call{Key: "k"}))
	_, err = store.Sweep(t.Context(), 1)
	require.NoError(t, err)
}

// This file is about tables of earlier and of later versions. Each version has a dump by pg_dump in testdata, with
// a record that is completed, one that is held, and one that is claimed and held when its lease ends.

// The view says what a record is, to a role that may not read the table, and shows nothing that is secret.
func TestViewOfTheKeys(t *testing.T) {
	t.Parallel()
	admin := pgtest.Shared(t).Pool(t)
	s, table := newStore(t, admin)
	later := clock(t, admin, table)
	claim := func(key string, lease time.Duration, hold bool) store.Claim {
		c := newClaim()
		c.Lease, c.Hold, c.HoldEnds, c.Label, c.SealedKey = lease, hold, true, "POST /orders", []byte("secret")
		guardtest.Claim(t, s, key, c)
		return c
	}
	claim("expired", time.Minute, false)
	later(2 * time.Hour) // the retention is one
	claim("lapsed", time.Minute, false)
	claim("held by lapse", time.Minute, true)
	require.NoError(t, s.Hold(t.Context(), "held", claim("held", time.Minute, true).Owner, nil))
	later(2 * time.Minute)
	claim("running", time.Hour, false)
	claim("running long", 1<<62, false)
	require.NoError(t, s.Complete(t.Context(), "completed", claim("completed", time.Minute, false).Owner,
		store.Completion{Status: 201, Answer: []byte("answer"), TTL: time.Hour}))
	require.NoError(t, s.Release(t.Context(), "released", claim("released", time.Minute, false).Owner, store.Release{}))

	pgtest.Exec(t, admin, "CREATE ROLE support_"+table+" LOGIN; GRANT SELECT ON "+table+"_keys TO support_"+table)
	config := admin.Config()
	config.ConnConfig.User = "support_" + table
	support := pgtest.PoolOf(t, config)
	_, err := support.Exec(t.Context(), "SELECT FROM "+table)
	require.ErrorContains(t, err, "permission denied")

	rows, err := support.Query(t.Context(), "SELECT * FROM "+table+"_keys")
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, pgx.RowToMap)
	require.NoError(t, err)
	want := map[string]string{
		"expired": "expired", "lapsed": "lapsed", "held by lapse": "held", "held": "held", "running": "running", "running long": "running",
		"completed": "completed", "released": "released",
	}
	require.Len(t, keys, len(want))
	for _, k := range keys {
		key := k["key"].(string)
		require.Equal(t, want[key], k["state"], key)
		require.Equal(t, "POST /orders", k["route"])
		require.NotNil(t, k["expires"])
		require.Positive(t, k["stored_bytes"])
		require.Equal(t, key == "completed", k["answer_bytes"] != nil, key)
		for _, secret := range []string{"owner", "fingerprint", "answer", "sealed_key", "steps", "notes"} {
			require.NotContains(t, k, secret)
		}
	}
}
