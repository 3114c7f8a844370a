package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
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
		pgtest.Exec(t, pool, "CREATE TABLE "+rows+" (n int8)")
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

// A transaction that begins with its first statement is like any other.

// A script uses a transaction whose first statement it is, and tells what it has seen. "rows" in its
// statements is a table with a unique column n.
type script func(ctx context.Context, tx pgx.Tx, sql func(string) string) []any

// one is a script of one statement with a result.
func one[T any](f func(ctx context.Context, tx pgx.Tx, sql func(string) string) (T, error)) script {
	return func(ctx context.Context, tx pgx.Tx, sql func(string) string) []any {
		result, err := f(ctx, tx, sql)
		return []any{result, told(err)}
	}
}

// told is what an error says that does not depend on when it happened.
func told(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	if err != nil {
		return "an error"
	}
	return ""
}

// values reads rows as programs do that do not close them.
func values(rows pgx.Rows, err error) ([]int64, error) {
	var all []int64
	for err == nil && rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return all, err
		}
		all = append(all, n)
	}
	return all, errors.Join(err, rows.Err())
}

var scripts = map[string]script{
	"Exec": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		return tx.Exec(ctx, sql("INSERT INTO rows VALUES ($1), ($1 + 1)"), int64(1))
	}),
	"Exec of several statements": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		return tx.Exec(ctx, sql("INSERT INTO rows VALUES (1); INSERT INTO rows VALUES (2)"))
	}),
	"Exec with named arguments": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		return tx.Exec(ctx, sql("INSERT INTO rows VALUES (@n)"), pgx.NamedArgs{"n": int64(1)})
	}),
	"Exec with a mode": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		return tx.Exec(ctx, sql("INSERT INTO rows VALUES ($1)"), pgx.QueryExecModeSimpleProtocol, int64(1))
	}),
	"Query": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) ([]int64, error) {
		return values(tx.Query(ctx, sql("INSERT INTO rows VALUES ($1), ($1 + 1) RETURNING n"), int64(1)))
	}),
	"Query without arguments": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) ([]int64, error) {
		return values(tx.Query(ctx, sql("INSERT INTO rows VALUES (1) RETURNING n")))
	}),
	"Query that collects": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) ([]int64, error) {
		rows, _ := tx.Query(ctx, sql("INSERT INTO rows VALUES ($1) RETURNING n"), int64(1))
		return pgx.CollectRows(rows, pgx.RowTo[int64])
	}),
	"Query that stops": func(ctx context.Context, tx pgx.Tx, sql func(string) string) []any {
		rows, err := tx.Query(ctx, sql("INSERT INTO rows VALUES ($1), ($1 + 1) RETURNING n"), int64(1))
		more := rows.Next()
		rows.Close()
		return []any{told(err), more, told(rows.Err()), rows.CommandTag().String()}
	},
	"Query with the wrong target": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (string, error) {
		rows, err := tx.Query(ctx, sql("INSERT INTO rows VALUES ($1), ($1 + 1) RETURNING n::text || 'x'"), int64(1))
		_, err = values(rows, err)
		return told(rows.Err()), err
	}),
	"QueryRow": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (n int64, err error) {
		return n, tx.QueryRow(ctx, sql("INSERT INTO rows VALUES ($1) RETURNING n"), int64(1)).Scan(&n)
	}),
	"QueryRow without a row": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (none bool, err error) {
		var n int64
		err = tx.QueryRow(ctx, sql("SELECT n FROM rows WHERE n = $1"), int64(7)).Scan(&n)
		return errors.Is(err, pgx.ErrNoRows), err
	}),
	"SendBatch": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (bool, error) {
		batch := new(pgx.Batch)
		batch.Queue(sql("INSERT INTO rows VALUES ($1)"), int64(1))
		batch.Queue(sql("INSERT INTO rows VALUES ($1)"), int64(2))
		return true, tx.SendBatch(ctx, batch).Close()
	}),
	"CopyFrom": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (int64, error) {
		return tx.CopyFrom(ctx, pgx.Identifier{sql("rows")}, []string{"n"}, pgx.CopyFromRows([][]any{{int64(1)}, {int64(2)}}))
	}),
	"Prepare": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		if _, err := tx.Prepare(ctx, "", sql("INSERT INTO rows VALUES ($1)")); err != nil {
			return pgconn.CommandTag{}, err
		}
		return tx.Exec(ctx, sql("INSERT INTO rows VALUES ($1)"), int64(1))
	}),
	"Begin": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (bool, error) {
		return true, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql("INSERT INTO rows VALUES ($1)"), int64(1))
			return err
		})
	}),
	"Conn": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		return tx.Conn().Exec(ctx, sql("INSERT INTO rows VALUES ($1)"), int64(1))
	}),
	"LargeObjects": one(func(ctx context.Context, tx pgx.Tx, _ func(string) string) (bool, error) {
		objects := tx.LargeObjects()
		id, err := objects.Create(ctx, 0)
		return id > 0, err
	}),
	"an error of the server": one(func(ctx context.Context, tx pgx.Tx, sql func(string) string) (pgconn.CommandTag, error) {
		return tx.Exec(ctx, sql("INSERT INTO rows VALUES ($1), ($1)"), int64(1))
	}),
	"an error of a query": one(func(ctx context.Context, tx pgx.Tx, _ func(string) string) ([]int64, error) {
		return values(tx.Query(ctx, "SELECT 1 / (n - 2) FROM generate_series(1, $1::int8) AS n", int64(3)))
	}),
	"an error of a row": one(func(ctx context.Context, tx pgx.Tx, _ func(string) string) (n int64, err error) {
		return n, tx.QueryRow(ctx, "SELECT 1 / $1::int8", int64(0)).Scan(&n)
	}),
	"bad syntax": one(func(ctx context.Context, tx pgx.Tx, _ func(string) string) (pgconn.CommandTag, error) {
		return tx.Exec(ctx, "INSERT OUT OF rows VALUES ($1)", int64(1))
	}),
	"bad syntax of a query": one(func(ctx context.Context, tx pgx.Tx, _ func(string) string) ([]int64, error) {
		return values(tx.Query(ctx, "SELEKT $1", int64(1)))
	}),
}

// Whatever the first statement is, it sees and leaves the same as in another transaction: what it
// returns, whether the transaction goes on, and no rows after a rollback.
func TestFirstStatementIsLikeAnyOther(t *testing.T) {
	t.Parallel()
	// In the third mode the driver makes its batches as in the first.
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		for name, f := range scripts {
			t.Run(mode.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				pool := pgtest.NewWire(0).Pool(t, pgtest.Shared(t).DSN, mode, 2)
				table := fmt.Sprintf("rows_%d", tables.Add(1))
				pgtest.Exec(t, pool, "CREATE TABLE "+table+" (n int8 UNIQUE)")
				sql := func(s string) string { return strings.ReplaceAll(s, "rows", table) }
				seen := func(ctx context.Context, tx pgx.Tx) string {
					all := f(ctx, tx, sql)
					status := tx.Conn().PgConn().TxStatus()
					n, err := values(tx.Query(ctx, sql("SELECT n FROM rows WHERE n > $1 ORDER BY n"), int64(0)))
					return fmt.Sprint(append(all, string(status), n, told(err))...)
				}
				var got string
				s := newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
					tx, err := s.store.Begin(r.Context(), pgx.TxOptions{})
					require.NoError(t, err)
					got = seen(r.Context(), tx)
					require.NoError(t, tx.Rollback(r.Context()))
					w.WriteHeader(http.StatusCreated)
				}, []pgstore.Option{pgstore.WithConns(1)})
				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
				var left int
				require.NoError(t, pool.QueryRow(t.Context(), sql("SELECT count(*) FROM rows")).Scan(&left))
				require.Zero(t, left)

				tx, err := pool.Begin(t.Context())
				require.NoError(t, err)
				want := seen(t.Context(), tx)
				_ = tx.Rollback(t.Context())
				require.Equal(t, want, got)
			})
		}
	}
}

// The driver closes a connection on which it has queued BEGIN before it finds that it cannot encode an
// argument. The transaction has failed then, and nothing else has.
func TestFirstStatementThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	for _, mode := range tripModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.NewWire(0).Pool(t, pgtest.Shared(t).DSN, mode, 1)
			s := newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
				err := s.store.InTx(r.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
					_, err := tx.Exec(r.Context(), "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ($1, 1, 1)", make(chan int))
					return err
				})
				require.ErrorContains(t, err, "chan int")
				w.WriteHeader(http.StatusBadRequest)
			}, nil)
			first := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, http.StatusBadRequest, first.Status)
			guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
			require.Equal(t, http.StatusBadRequest, s.Do(t, guardtest.Call{Key: "other"}).Status)
			require.Zero(t, s.rows(t, "k"))
		})
	}
}

// A handler that forgets its transaction while rows are open has not ended it: nothing is committed, and
// nothing is in doubt.
func TestForgottenTransactionWithOpenRows(t *testing.T) {
	t.Parallel()
	var events guardtest.Events
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		op, _ := idempotency.FromContext(r.Context())
		tx, err := s.store.Begin(r.Context(), pgx.TxOptions{})
		require.NoError(t, err)
		rows, err := tx.Query(r.Context(), "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ($1, 1, 1) RETURNING key", op.Key().Value)
		require.NoError(t, err)
		require.True(t, rows.Next())
		if op.Attempt() > 1 {
			rows.Close()
			require.NoError(t, tx.Commit(r.Context()))
		}
		w.WriteHeader(http.StatusCreated)
	}, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
	first := s.Do(t, guardtest.Call{Key: "k"})
	guardtest.RequireProblem(t, first, http.StatusInternalServerError, problem.CannotCommit)
	require.Zero(t, s.rows(t, "k"))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.Equal(t, 1, s.rows(t, "k"))
	require.Zero(t, events.Count(event.CommittedAlone))
}

// A function that leaves rows open is told so, and rolled back: PostgreSQL would not execute the COMMIT.
func TestRowsThatWereLeftOpen(t *testing.T) {
	insert := func(s *shop) string {
		return "INSERT INTO " + s.table + " (key, amount, attempt) VALUES ($1, 1, 1) RETURNING key"
	}
	inPgx := func(s *shop, ctx context.Context, tx pgx.Tx, statements int, closes bool) error {
		op, _ := idempotency.FromContext(ctx)
		for i := range statements {
			rows, err := tx.Query(ctx, insert(s), op.Key().Value)
			require.NoError(t, err)
			require.True(t, rows.Next())
			if closes || i < statements-1 {
				rows.Close()
			}
		}
		return nil
	}
	for name, run := range map[string]func(s *shop, ctx context.Context, statements int, closes bool) error{
		"InTx": func(s *shop, ctx context.Context, statements int, closes bool) error {
			return s.store.InTx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error { return inPgx(s, ctx, tx, statements, closes) })
		},
		"StepTx": func(s *shop, ctx context.Context, statements int, closes bool) error {
			_, err := pgstore.StepTx(ctx, s.store, "charge", pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) (int, error) {
				return 1, inPgx(s, ctx, tx, statements, closes)
			})
			return err
		},
		"InSQLTx": func(s *shop, ctx context.Context, statements int, closes bool) error {
			op, _ := idempotency.FromContext(ctx)
			return s.store.InSQLTx(ctx, s.db, nil, func(tx *sql.Tx) error {
				for i := range statements {
					rows, err := tx.QueryContext(ctx, insert(s), op.Key().Value) //nolint:rowserrcheck,sqlclosecheck // that is what is tried
					require.NoError(t, err)
					require.True(t, rows.Next())
					if closes || i < statements-1 {
						require.NoError(t, rows.Close())
					}
				}
				return nil
			})
		},
	} {
		for _, statements := range []int{1, 2} { // BEGIN goes with the first one
			t.Run(fmt.Sprint(name, statements), func(t *testing.T) {
				t.Parallel()
				var events guardtest.Events
				s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
					answer(w, run(s, r.Context(), statements, guardtest.Op(r.Context()).Attempt() > 2))
				}, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
				for range 2 {
					got := s.Do(t, guardtest.Call{Key: "k"})
					require.Equal(t, http.StatusInternalServerError, got.Status, "%s", got.Body)
					if name != "InSQLTx" { // where the driver says it
						require.Contains(t, string(got.Body), "left rows open")
					}
					require.Zero(t, s.rows(t, "k"))
				}
				require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Equal(t, statements, s.rows(t, "k"))
				require.Zero(t, events.Count(event.CommittedAlone)+events.Count(event.Held))
			})
		}
	}
}
