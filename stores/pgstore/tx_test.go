package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// A shop sells something: each of its charges is one row.
type shop struct {
	*guardtest.Server
	pool           *pgxpool.Pool
	db, stdlib     *sql.DB // by OpenDB, and by the driver alone
	store          *pgstore.Store
	guard          *idempotency.Guard
	table, records string // of charges, and of the store
}

// newShop returns a shop whose requests run h.
func newShop(t testing.TB, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	t.Helper()
	return newShopAt(t, pgtest.Shared(t), h, opts...)
}

func newShopAt(t testing.TB, server *pgtest.Server, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	t.Helper()
	return newShopOn(t, server.Pool(t), h, nil, opts...)
}

func newShopOn(
	t testing.TB, pool *pgxpool.Pool, h func(s *shop, w http.ResponseWriter, r *http.Request), storeOpts []pgstore.Option, opts ...idempotency.Option,
) *shop {
	t.Helper()
	s := &shop{pool: pool, table: fmt.Sprintf("charges_%d", tables.Add(1))}
	s.db, s.stdlib = pgstore.OpenDB(s.pool), stdlib.OpenDBFromPool(s.pool)
	t.Cleanup(func() { _ = errors.Join(s.db.Close(), s.stdlib.Close()) })
	_, err := s.pool.Exec(t.Context(), "CREATE TABLE "+s.table+` (
		key text NOT NULL, amount int8 NOT NULL, attempt int8 NOT NULL,
		unique_later text, CONSTRAINT `+s.table+`_later UNIQUE (unique_later) DEFERRABLE INITIALLY DEFERRED)`)
	require.NoError(t, err)
	s.store, s.records = newStore(t, s.pool, storeOpts...)
	opts = append([]idempotency.Option{idempotency.WithTransaction(true)}, opts...)
	s.guard = guardtest.NewGuard(t, s.store, opts...)
	s.Server = guardtest.ServeHTTP1(t, s.guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(s, w, r) })))
	return s
}

// An execer is a transaction of either kind.
type execer func(ctx context.Context, sql string, args ...any) error

func pgxExecer(tx pgx.Tx) execer {
	return func(ctx context.Context, sql string, args ...any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
}

func sqlExecer(tx *sql.Tx) execer {
	return func(ctx context.Context, sql string, args ...any) error {
		_, err := tx.ExecContext(ctx, sql, args...)
		return err
	}
}

// insert inserts the row of a charge.
func (s *shop) insert(ctx context.Context, exec execer) error {
	op, ok := idempotency.FromContext(ctx)
	if !ok {
		return errors.New("not in a run")
	}
	return exec(ctx, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ($1, $2, $3)", op.Key().Value, int64(100), int64(op.Attempt()))
}

// A way is how a handler runs its transaction.
type way func(s *shop, ctx context.Context, level string, f func(exec execer) error) error

// ways are those that a program may take.
var ways = map[string]way{
	"InTx": func(s *shop, ctx context.Context, level string, f func(exec execer) error) error {
		return s.store.InTx(ctx, atLevel(level), func(tx pgx.Tx) error { return f(pgxExecer(tx)) })
	},
	"InSQLTx":        inSQLTx(func(s *shop) *sql.DB { return s.db }),
	"InSQLTx stdlib": inSQLTx(func(s *shop) *sql.DB { return s.stdlib }),
}

func inSQLTx(db func(s *shop) *sql.DB) way {
	return func(s *shop, ctx context.Context, level string, f func(exec execer) error) error {
		isolation := map[string]sql.IsolationLevel{
			"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
		}[level]
		return s.store.InSQLTx(ctx, db(s), &sql.TxOptions{Isolation: isolation}, func(tx *sql.Tx) error { return f(sqlExecer(tx)) })
	}
}

// levels are the isolation levels of PostgreSQL.
var levels = []string{"read committed", "repeatable read", "serializable"}

// onEachWay runs the test for each way and each isolation level.
func onEachWay(t *testing.T, f func(t *testing.T, inTx way, level string)) {
	for name, inTx := range ways {
		for _, level := range levels {
			t.Run(name+" "+level, func(t *testing.T) {
				t.Parallel()
				f(t, inTx, level)
			})
		}
	}
}

// answer answers 201, or 500 for an error.
func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write([]byte(`{"charged":true}`))
}

// charge inserts a row and answers 201.
func charge(inTx way, level string) func(s *shop, w http.ResponseWriter, r *http.Request) {
	return func(s *shop, w http.ResponseWriter, r *http.Request) {
		answer(w, inTx(s, r.Context(), level, func(exec execer) error { return s.insert(r.Context(), exec) }))
	}
}

// rows returns how many charges a key has.
func (s *shop) rows(t testing.TB, key string) (n int) {
	t.Helper()
	require.NoError(t, s.pool.QueryRow(context.Background(), "SELECT count(*) FROM "+s.table+" WHERE key = $1", key).Scan(&n))
	return n
}

// A row that is written is not there before the answer is known.
func TestRowsAreCommittedWithTheAnswer(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			charge(inTx, level)(s, w, r)
			assert.Zero(t, s.rows(t, "k"), "the rows are there before the answer")
		})
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, 1, s.rows(t, "k"))
	})
}

// The status does not decide. The function does.
func TestFunctionDecides(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		for _, want := range []error{nil, errors.New("refused")} {
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				require.ErrorIs(t, inTx(s, r.Context(), level, func(exec execer) error {
					require.NoError(t, s.insert(r.Context(), exec))
					return want
				}), want)
				w.WriteHeader(http.StatusPaymentRequired)
			})
			first := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, http.StatusPaymentRequired, first.Status, "%s", first.Body)
			guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
			require.Equal(t, map[bool]int{true: 1}[want == nil], s.rows(t, "k"))
		}
	})
}

// A server error and a panic roll back whatever the function has said, and the next request runs
// again, even under Hold.
func TestFailureRollsBack(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		for _, fails := range []func(w http.ResponseWriter){
			func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
			func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		} {
			var attempts atomic.Int64
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if attempts.Add(1) > 1 {
					charge(inTx, level)(s, w, r)
					return
				}
				require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error { return s.insert(r.Context(), exec) }))
				fails(w)
			}, idempotency.WithRecovery(idempotency.Hold))
			_, _ = s.Try(t.Context(), guardtest.Call{Key: "k"})
			require.Zero(t, s.rows(t, "k"))
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Equal(t, 1, s.rows(t, "k"))
		}
	})
}

// A constraint that is checked at the commit fails it. The client is told that nothing happened.
func TestCommitThatFails(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error {
				return errors.Join(s.insert(r.Context(), exec), s.insert(r.Context(), exec),
					exec(r.Context(), "UPDATE "+s.table+" SET unique_later = 'the same'"))
			}))
			w.WriteHeader(http.StatusCreated)
		})
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusInternalServerError, problem.CannotCommit)
		require.Zero(t, s.rows(t, "k"))
	})
}

// A statement that has failed and was not looked at leaves a transaction that cannot be committed.
// The handler is told so.
func TestIgnoredErrorRollsBack(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.Error(t, inTx(s, r.Context(), level, func(exec execer) error {
				err := s.insert(r.Context(), exec)
				_ = exec(r.Context(), "SELECT 1/0")
				return err
			}))
			w.WriteHeader(http.StatusInternalServerError)
		})
		for range 2 {
			got := s.Do(t, guardtest.Call{Key: "k"})
			require.Equal(t, http.StatusInternalServerError, got.Status)
			require.False(t, got.Replayed())
		}
		require.Zero(t, s.rows(t, "k"))
	})
}

// A transaction that keeps its record locked refuses steps before they have an effect, and others
// record them.
func TestStepInATransaction(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		effects := 0
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			step := func(name string) error {
				_, err := idempotency.Step(r.Context(), name, func(context.Context) (int, error) { effects++; return 0, nil }, idempotency.AtMostOnce())
				return err
			}
			want := map[bool]error{true: store.ErrTransactionOpen}[level != "read committed"]
			require.NoError(t, inTx(s, r.Context(), level, func(execer) error {
				require.ErrorIs(t, step("in it"), want)
				return nil
			}))
			require.ErrorIs(t, step("after it"), want)
			w.WriteHeader(http.StatusCreated)
		})
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, map[bool]int{true: 2}[level == "read committed"], effects)
	})
}

// A transaction that is longer than the lease is renewed, and completes the first time.
func TestTransactionLongerThanItsLease(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		var runs atomic.Int64
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) > 1 {
				return
			}
			clock(t, s.pool, s.records)(2 * time.Hour) // as if the transaction had begun before
			require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error {
				err := s.insert(r.Context(), exec)
				s.renew(t, 1)
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
				return err
			}))
			w.WriteHeader(http.StatusCreated)
		}, idempotency.WithLease(time.Hour), idempotency.WithWait(0))
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
		require.EqualValues(t, 1, runs.Load())
		require.Equal(t, 1, s.rows(t, "k"))
	})
}

// Sixteen clients move money between two accounts in both directions, which deadlocks, until every
// one of their keys is settled. No sum is wrong.
func TestConflictingTransactions(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			n, err := strconv.Atoi(r.Header.Get("N"))
			require.NoError(t, err)
			err = inTx(s, r.Context(), level, func(exec execer) error {
				for i := range 2 {
					if err := exec(r.Context(), "UPDATE "+s.table+" SET amount = amount + 1 WHERE key = $1", fmt.Sprint("account", (n+i)%2)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
		})
		for i := range 2 {
			pgtest.Exec(t, s.pool, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ($1, 0, 1)", fmt.Sprint("account", i))
		}
		const clients, keys = 16, 10
		var refusals atomic.Int64
		guardtest.Together(clients, func(c int) {
			for k := range keys {
				call := guardtest.Call{Key: fmt.Sprintf("key-%d-%d", c, k), Header: http.Header{"N": {strconv.Itoa(c)}}}
				for {
					got := s.Do(t, call)
					if got.Status == http.StatusCreated {
						break
					}
					refusals.Add(1)
					if got.Status != http.StatusServiceUnavailable {
						t.Errorf("status %d: %s", got.Status, got.Body)
						return
					}
				}
			}
		})
		for i := range 2 {
			var amount int
			require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT amount FROM "+s.table+" WHERE key = $1", fmt.Sprint("account", i)).Scan(&amount))
			require.Equal(t, clients*keys, amount)
		}
		t.Logf("%d refusals of %d requests", refusals.Load(), clients*keys)
		require.LessOrEqual(t, refusals.Load(), int64(clients*keys/2))
	})
}

// Another transaction has changed the row that this one has seen. The function runs again.
func TestConflictRunsTheFunctionAgain(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		if level == "read committed" {
			return // there is no conflict
		}
		tries := 0
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			add := "UPDATE " + s.table + " SET amount = amount + 1"
			require.NoError(t, inTx(s, r.Context(), level, func(exec execer) error {
				if err := exec(r.Context(), "SELECT FROM "+s.table); err != nil {
					return err
				}
				if tries++; tries == 1 {
					_, err := s.pool.Exec(r.Context(), add)
					require.NoError(t, err)
				}
				return exec(r.Context(), add)
			}))
			w.WriteHeader(http.StatusCreated)
		})
		pgtest.Exec(t, s.pool, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ('account', 0, 1)")
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 2, tries)
		var amount int
		require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT amount FROM "+s.table).Scan(&amount))
		require.Equal(t, 2, amount)
	})
}
