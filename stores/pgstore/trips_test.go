package pgstore_test

import (
	"context"
	"database/sql"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// The round trips of a store, as they are counted on the wire.

// tripModes are the modes of the driver in which a store works.
var tripModes = []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol}

// onEachMode runs the test in each mode, on a wire.
func onEachMode(t *testing.T, f func(t *testing.T, wire *pgtest.Wire, pool *pgxpool.Pool)) {
	for _, mode := range tripModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			wire := pgtest.NewWire(0)
			// With one connection, a statement that was prepared once is prepared.
			f(t, wire, wire.Pool(t, pgtest.Shared(t).DSN, mode, 1))
		})
	}
}

// What each call of a store costs is the same in each mode: a mode differs only in what the first
// use of a statement costs on each connection.
func TestRoundTripsOfCalls(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, wire *pgtest.Wire, pool *pgxpool.Pool) {
		s, table := newStore(t, pool, pgstore.WithConns(1))
		another, err := pgstore.New(t.Context(), pool, pgstore.WithTable(table), pgstore.WithConns(1)) // process
		require.NoError(t, err)
		t.Cleanup(another.Close)
		ctx := t.Context()
		claim := func(key string, c store.Claim) store.Record {
			r, err := s.Claim(ctx, key, c)
			require.NoError(t, err)
			return r
		}
		calls := func(key string, trips func(what string, want int64, f func())) {
			c, again, other, step := newClaim(), newClaim(), newClaim(), key+" step"
			completion := store.Completion{Answer: []byte("answer"), TTL: time.Hour}
			trips("claim", 1, func() { require.True(t, claim(key, c).Mine) })
			trips("conflict", 1, func() { require.False(t, claim(key, other).Mine) })
			trips("renewal", 1, func() { require.NoError(t, s.Renew(ctx, key, c.Owner)) })
			trips("step", 1, func() { require.NoError(t, s.SaveStep(ctx, key, c.Owner, step, []byte("value"))) })
			trips("release", 1, func() { require.NoError(t, s.Release(ctx, key, c.Owner, store.Release{})) })
			trips("claim of what was released", 2, func() { require.True(t, claim(key, again).Mine) })
			trips("completion", 1, func() { require.NoError(t, s.Complete(ctx, key, again.Owner, completion)) })
			trips("replay", 1, func() { require.Equal(t, completion.Answer, claim(key, other).Answer) })
			trips("replay by another process", 1, func() {
				r, err := another.Claim(ctx, key, other)
				require.NoError(t, err)
				require.Equal(t, completion.Answer, r.Answer)
			})
		}
		calls("warm", func(_ string, _ int64, f func()) { f() })
		calls("key", func(what string, want int64, f func()) { require.Equal(t, want, wire.Count(f), what) })
	})
}

// A run that joins a transaction costs no round trip more than the transaction: its claim is one more, and
// BEGIN goes with the first statement. At the stricter levels the statement that goes with BEGIN locks
// the record.
func TestRoundTripsOfRuns(t *testing.T) {
	t.Parallel()
	onEachMode(t, func(t *testing.T, wire *pgtest.Wire, pool *pgxpool.Pool) {
		st, table := newStore(t, pool, pgstore.WithConns(1))
		rows := table + "_rows"
		_, err := pool.Exec(t.Context(), "CREATE TABLE "+rows+" (n int8)")
		require.NoError(t, err)
		insert := func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO "+rows+" VALUES ($1)", int64(1))
			return err
		}
		var handle func(ctx context.Context) error
		guard := guardtest.NewGuard(t, st, idempotency.WithTransaction(true))
		server := guardtest.ServeHTTP1(t, guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := handle(r.Context()); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})))
		run := func(kind string, h func(ctx context.Context) error) int64 {
			handle = h
			for range 2 {
				require.Equal(t, http.StatusOK, server.Do(t, guardtest.Call{Key: kind + "-warm"}).Status)
			}
			return wire.Count(func() {
				require.Equal(t, http.StatusOK, server.Do(t, guardtest.Call{Key: kind}).Status)
			})
		}

		plain := func() {
			require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return insert(t.Context(), tx) }))
		}
		plain()
		require.EqualValues(t, 3, wire.Count(plain), "BEGIN, INSERT, COMMIT")

		for _, level := range levels {
			want := map[bool]int{true: 3, false: 3 + 1}[level == "read committed"]
			require.EqualValues(t, want, run(strings.ReplaceAll("joined "+level, " ", "-"), func(ctx context.Context) error {
				opts := pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)}
				return st.InTx(ctx, opts, func(tx pgx.Tx) error { return insert(ctx, tx) })
			}), level)
		}
		require.EqualValues(t, 1, wire.Count(func() {
			require.Equal(t, http.StatusOK, server.Do(t, guardtest.Call{Key: "joined-read-committed"}).Status)
		}), "replay")
		// By database/sql, the claim is the one that there is more: BEGIN takes one of its own.
		db := pgstore.OpenDB(pool)
		t.Cleanup(func() { _ = db.Close() })
		plainSQL := func(ctx context.Context, in func(context.Context, *sql.DB, *sql.TxOptions, func(*sql.Tx) error) error, level sql.IsolationLevel) error {
			return in(ctx, db, &sql.TxOptions{Isolation: level}, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+rows+" VALUES ($1)", int64(1))
				return err
			})
		}
		outside := wire.Count(func() { require.NoError(t, plainSQL(t.Context(), st.InSQLTx, sql.LevelReadCommitted)) })
		require.EqualValues(t, 3, outside, "BEGIN, INSERT, COMMIT")
		for level, more := range map[sql.IsolationLevel]int64{sql.LevelReadCommitted: 1, sql.LevelSerializable: 2} {
			require.Equal(t, outside+more, run(strings.ReplaceAll("sql "+level.String(), " ", "-"), func(ctx context.Context) error {
				return plainSQL(ctx, st.InSQLTx, level)
			}), level)
		}
		require.EqualValues(t, 2, run("nothing-done", func(context.Context) error { return nil }), "claim, completion")
		require.EqualValues(t, 2+2, run("step", func(ctx context.Context) error {
			_, err := pgstore.StepTx(ctx, st, "step", pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) (bool, error) {
				return true, insert(ctx, tx)
			})
			return err
		}), "claim, completion, and the transaction of a step")
	})
}

// A program may begin a strict transaction with statements of its own.
func TestBeginQueryLocksTheRecord(t *testing.T) {
	t.Parallel()
	opts := pgx.TxOptions{BeginQuery: "BEGIN ISOLATION LEVEL SERIALIZABLE; SET LOCAL statement_timeout = '7s'"}
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		var level, timeout string
		err := s.store.InTx(r.Context(), opts, func(tx pgx.Tx) error {
			return tx.QueryRow(r.Context(), "SELECT current_setting('transaction_isolation'), current_setting('statement_timeout')").Scan(&level, &timeout)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		_, _ = w.Write([]byte(level + " " + timeout))
	})
	require.Equal(t, "serializable 7s", string(s.Do(t, guardtest.Call{Key: "k"}).Body))
}
