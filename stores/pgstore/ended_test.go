package pgstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about handlers that end their transactions past the store.

// ends are the ways to do that by statements, and how many rows they leave.
var ends = map[string]struct {
	statements []string
	rows       int
	begins     bool // another one
}{
	"COMMIT":             {[]string{"COMMIT"}, 1, false},
	"ROLLBACK":           {[]string{"ROLLBACK"}, 0, false},
	"COMMIT and BEGIN":   {[]string{"COMMIT", "BEGIN"}, 1, true},
	"COMMIT AND CHAIN":   {[]string{"COMMIT AND CHAIN"}, 1, true},
	"ROLLBACK AND CHAIN": {[]string{"ROLLBACK AND CHAIN"}, 0, true},
	"at once":            {[]string{"COMMIT; BEGIN"}, 1, true},
}

// A function that ends its transaction itself is found out, however it does it and however the
// handler leaves: rows that it may have committed hold the key under Hold, and are not inserted again.
func TestTransactionThatEndsItselfIsFoundOut(t *testing.T) {
	failed := errors.New("failed")
	pool := pgtest.Shared(t).Pool(t)
	for endName, end := range ends {
		for leaveName, leave := range map[string]func(exec execer) error{
			"success":          func(execer) error { return nil },
			"error":            func(execer) error { return failed },
			"panic":            func(execer) error { panic(http.ErrAbortHandler) },
			"exit":             func(execer) error { runtime.Goexit(); return nil },
			"failed statement": func(exec execer) error { return exec(context.Background(), "SELECT 1/0") },
		} {
			t.Run(endName+"/"+leaveName, func(t *testing.T) {
				onEachWay(t, func(t *testing.T, inTx way, level string) {
					var opts []pgstore.Option
					if level == "repeatable read" { // it is as serializable, and the transaction may be the claim as well
						opts = append(opts, pgstore.WithOneCommit(pgx.RepeatableRead))
					}
					if leaveName == "failed statement" && strings.Contains(t.Name(), "/InSQLTx") && end.begins {
						return // see TestFailedTransactionIsNotAsked
					}
					var events guardtest.Events
					s := newShopOn(t, pool, func(s *shop, w http.ResponseWriter, r *http.Request) {
						require.Error(t, inTx(s, r.Context(), level, func(exec execer) error {
							require.NoError(t, s.insert(r.Context(), exec))
							for _, statement := range end.statements {
								_ = exec(r.Context(), statement) // InTx refuses what comes after the end
							}
							return leave(exec)
						}))
						w.WriteHeader(http.StatusTooManyRequests)
					}, opts, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
					for range 2 {
						_, _ = s.Try(t.Context(), guardtest.Call{Key: "k"})
						require.Equal(t, end.rows, s.rows(t, "k"))
					}
					require.Equal(t, 1, events.Count(event.CommittedAlone))
					require.Positive(t, events.Count(event.Held))
					require.Zero(t, events.Count(event.Overtaken)+events.Count(event.LeaseLost))
				})
			})
		}
	}
}

// The limit: when a statement fails in a transaction that has followed that of the run, and before the store has
// looked, nothing tells the two apart. The run counts as rolled back, although its rows are committed.
func TestFailedTransactionIsNotAsked(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		for _, statement := range []string{"COMMIT; BEGIN; SELECT 1/0", "COMMIT AND CHAIN; SELECT 1/0"} {
			var events guardtest.Events
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				require.Error(t, inTx(s, r.Context(), level, func(exec execer) error {
					return errors.Join(s.insert(r.Context(), exec), exec(r.Context(), statement))
				}))
				w.WriteHeader(http.StatusInternalServerError)
			}, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
			for rows := range 2 {
				require.Equal(t, http.StatusInternalServerError, s.Do(t, guardtest.Call{Key: "k"}).Status)
				require.Equal(t, rows+1, s.rows(t, "k"))
			}
			require.Zero(t, events.Count(event.CommittedAlone))
		}
	})
}

// So is one that the methods of database/sql end.
func TestSQLTransactionThatEndsItselfIsFoundOut(t *testing.T) {
	onEachClaim(t, sqlTransactionThatEndsItselfIsFoundOut)
}

// onEachClaim runs the test with claims that are records, and with those that are transactions.
func onEachClaim(t *testing.T, f func(t *testing.T, opts ...pgstore.Option)) {
	t.Run("two commits", func(t *testing.T) { f(t) })
	t.Run("one commit", func(t *testing.T) { f(t, pgstore.WithOneCommit("")) })
}

func sqlTransactionThatEndsItselfIsFoundOut(t *testing.T, opts ...pgstore.Option) {
	for name, end := range map[string]func(tx *sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		for _, when := range []string{"success", "error", "after"} {
			onEachStatus(t, name+"/"+when, func(t *testing.T, status int) {
				if status == http.StatusCreated && when != "after" {
					return // it was told, and is believed
				}
				var events guardtest.Events
				s := newShopOn(t, pgtest.Shared(t).Pool(t), func(s *shop, w http.ResponseWriter, r *http.Request) {
					var kept *sql.Tx
					err := s.store.InSQLTx(r.Context(), s.db, nil, func(tx *sql.Tx) error {
						kept = tx
						require.NoError(t, s.insert(r.Context(), sqlExecer(tx)))
						if when == "after" {
							return nil
						}
						require.NoError(t, end(tx))
						return map[string]error{"error": errors.New("failed")}[when]
					})
					if when == "after" {
						require.NoError(t, err)
						require.NoError(t, end(kept))
					} else {
						require.Error(t, err)
					}
					w.WriteHeader(status)
				}, opts, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
				first := s.Do(t, guardtest.Call{Key: "k"})
				if when == "after" {
					guardtest.RequireProblem(t, first, http.StatusConflict, problem.OutcomeUnknown)
				}
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
				require.Equal(t, map[string]int{"Commit": 1}[name], s.rows(t, "k"))
				require.Equal(t, 1, events.Count(event.CommittedAlone))
				require.Positive(t, events.Count(event.Held))
			})
		}
	}
}

// onEachStatus runs the test for each kind of answer that a handler may have given.
func onEachStatus(t *testing.T, name string, f func(t *testing.T, status int)) {
	for _, status := range []int{http.StatusCreated, http.StatusTooManyRequests, http.StatusInternalServerError} {
		t.Run(fmt.Sprintf("%s/%d", name, status), func(t *testing.T) {
			t.Parallel()
			f(t, status)
		})
	}
}

// One that is kept is ended after its function has succeeded. The answer tells of rows that may be gone.
func TestKeptTransactionThatEndsIsFoundOut(t *testing.T) {
	onEachClaim(t, keptTransactionThatEndsIsFoundOut)
}

func keptTransactionThatEndsIsFoundOut(t *testing.T, opts ...pgstore.Option) {
	for name, end := range ends {
		onEachStatus(t, name, func(t *testing.T, status int) {
			var events guardtest.Events
			s := newShopOn(t, pgtest.Shared(t).Pool(t), func(s *shop, w http.ResponseWriter, r *http.Request) {
				var kept *sql.Tx
				require.NoError(t, s.store.InSQLTx(r.Context(), s.db, nil, func(tx *sql.Tx) error {
					kept = tx
					return s.insert(r.Context(), sqlExecer(tx))
				}))
				for _, statement := range end.statements {
					_, err := kept.ExecContext(r.Context(), statement)
					require.NoError(t, err)
				}
				w.WriteHeader(status)
			}, opts, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
			for range 2 {
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
				require.Equal(t, end.rows, s.rows(t, "k"))
			}
			require.Equal(t, 1, events.Count(event.CommittedAlone))
		})
	}
}

// One that is kept is ended by a goroutine beside the guard. Whoever is faster, the answer is true.
func TestKeptTransactionThatEndsBesideTheGuard(t *testing.T) {
	onEachClaim(t, func(t *testing.T, opts ...pgstore.Option) {
		for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
			t.Run(name, func(t *testing.T) {
				var beside sync.WaitGroup
				s := newShopOn(t, pgtest.Shared(t).Pool(t), func(s *shop, w http.ResponseWriter, r *http.Request) {
					returned := make(chan struct{})
					defer close(returned)
					require.NoError(t, s.store.InSQLTx(r.Context(), s.db, nil, func(tx *sql.Tx) error {
						beside.Go(func() {
							<-returned
							_ = end(tx)
						})
						return s.insert(r.Context(), sqlExecer(tx))
					}))
					w.WriteHeader(http.StatusCreated)
				}, opts, idempotency.WithRecovery(idempotency.Hold))
				for n := range 20 {
					key := fmt.Sprint(name, n)
					got := s.Do(t, guardtest.Call{Key: key})
					beside.Wait()
					if got.Status == http.StatusCreated || got.Problem.Code.Undone() {
						require.Equal(t, got.Status == http.StatusCreated, s.rows(t, key) == 1, "%d %s", got.Status, got.Body)
					}
				}
			})
		}
	})
}

// The same in a step. Its key is held, because nobody will know whether the step has happened.
func TestStepThatEndsItsTransactionIsFoundOut(t *testing.T) {
	for name, end := range ends {
		for leaves, failed := range map[string]error{"success": nil, "error": errors.New("failed")} {
			for _, level := range []string{"read committed", "serializable"} {
				t.Run(name+"/"+leaves+"/"+level, func(t *testing.T) {
					t.Parallel()
					s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
						_, err := pgstore.StepTx(r.Context(), s.store, "charge", pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)}, func(ctx context.Context, tx pgx.Tx) (int, error) {
							exec := pgxExecer(tx)
							require.NoError(t, s.insert(r.Context(), exec))
							for _, statement := range end.statements {
								_ = exec(ctx, statement)
							}
							return 1, failed
						})
						require.ErrorIs(t, err, idempotency.ErrCommitUnknown)
						require.ErrorIs(t, err, store.ErrCommittedAlone)
						w.WriteHeader(http.StatusTooManyRequests)
					})
					for range 2 {
						guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.OutcomeUnknown)
						require.Equal(t, end.rows, s.rows(t, "k"))
					}
				})
			}
		}
	}
}

// A pooler need not tell what the server has told. Then the statement that completes the record finds out.
func TestFenceKnowsItsTransaction(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		s := newShop(t, nil)
		claim := guardtest.Claim(t, s.store, "k", store.Claim{Owner: store.Owner{1}, Lease: time.Minute, Retention: time.Hour})
		require.True(t, claim.Mine)
		joined, tx, err := s.store.JoinTx(t.Context(), "k", store.Owner{1}, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
		require.NoError(t, err)
		pgtest.Exec(t, tx, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ($1, 1, 1)", "k")
		_, err = tx.Exec(t.Context(), "COMMIT AND CHAIN")
		require.NoError(t, err)
		pgstore.Forget(tx)
		require.NoError(t, tx.Commit(t.Context()))
		require.ErrorIs(t, joined.Complete(t.Context(), store.Completion{Answer: []byte("a"), TTL: time.Hour}), store.ErrCommittedAlone)
		rec := guardtest.Get(t, s.store, "k")
		require.Equal(t, store.Claimed, rec.State)
	}
}

// What keeps a COMMIT from being reached is an error in the log of the server. It names the store.
func TestFenceIsNamedInTheLog(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s := newShopAt(t, server, nil)
	for key, ends := range map[string]bool{"lost": false, "ended": true} {
		o := store.Owner{1}
		guardtest.Claim(t, s.store, key, store.Claim{Owner: o, Lease: time.Minute, Retention: time.Hour})
		joined, tx, err := s.store.JoinTx(t.Context(), key, o, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
		require.NoError(t, err)
		pgtest.Exec(t, tx, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ($1, 1, 1)", key)
		want := store.ErrCommittedAlone
		if ends {
			pgtest.Exec(t, tx, "COMMIT AND CHAIN")
			pgstore.Forget(tx)
		} else {
			require.NoError(t, s.store.Release(t.Context(), key, o, store.Release{}))
			want = store.ErrNotOwner
		}
		require.NoError(t, tx.Commit(t.Context()))
		require.ErrorIs(t, joined.Complete(t.Context(), store.Completion{Answer: []byte("a"), TTL: time.Hour}), want)
	}
	var errs int
	for line := range strings.Lines(server.Log(t)) {
		if strings.Contains(line, " ERROR: ") {
			errs++
			require.Contains(t, line, `"idempotency: `)
		}
	}
	require.Equal(t, 2, errs)
}

// A function ignores that a statement has failed. PostgreSQL commits nothing then, and the error says so. A
// handler that ignores that error too claims a row that is not there.
func TestFailedStatementThatTheFunctionIgnores(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		for _, says := range []int{http.StatusCreated, http.StatusServiceUnavailable, http.StatusUnprocessableEntity} {
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				err := inTx(s, r.Context(), level, func(exec execer) error {
					require.NoError(t, s.insert(r.Context(), exec))
					require.Error(t, exec(r.Context(), "SELECT 1/0"))
					return nil
				})
				require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
				require.ErrorContains(t, err, "savepoint")
				w.WriteHeader(says)
			})
			got := s.Do(t, guardtest.Call{Key: "k"})
			if says == http.StatusCreated {
				guardtest.RequireProblem(t, got, http.StatusInternalServerError, problem.CannotCommit)
			} else {
				require.Equal(t, says, got.Status)
			}
			require.Equal(t, says == http.StatusUnprocessableEntity, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
			require.Zero(t, s.rows(t, "k"))
		}
	})
}

// The server ends a transaction that waits for its handler for too long. Nothing has happened then,
// and another attempt may be faster.
func TestTransactionThatIsIdleForTooLong(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		slow := true
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			err := inTx(s, r.Context(), level, func(exec execer) error {
				if err := errors.Join(
					exec(r.Context(), "SET LOCAL application_name = '"+s.table+"'"),
					s.insert(r.Context(), exec),
				); err != nil {
					return err
				}
				if !slow {
					return nil
				}
				return exec(r.Context(), "SET LOCAL idle_in_transaction_session_timeout = '50ms'")
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if slow {
				slow = false
				s.waitForEnd(t)
			}
			w.WriteHeader(http.StatusCreated)
		}, idempotency.WithRecovery(idempotency.Hold))
		first := s.Do(t, guardtest.Call{Key: "k"})
		guardtest.RequireProblem(t, first, http.StatusServiceUnavailable, problem.RolledBack)
		require.Zero(t, s.rows(t, "k"))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t, "k"))
	})
}

// waitForEnd waits until the transaction that has set the name of the table has ended.
func (s *shop) waitForEnd(t testing.TB) {
	t.Helper()
	for ctx := context.Background(); ; time.Sleep(10 * time.Millisecond) { // a poll
		var n int
		err := s.pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", s.table).Scan(&n)
		if err != nil || n == 0 {
			assert.NoError(t, err)
			return
		}
	}
}

// A transaction inside that of a run can do nothing when the handler has said that the outer one is to
// be committed. Its rollback, deferred as everywhere, would take rows back that the answer tells of.
func TestInnerTransactionEndsWithTheOuter(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		tx, err := s.store.Begin(ctx, pgx.TxOptions{})
		if err != nil {
			panic(err)
		}
		inner, err := tx.Begin(ctx)
		if err != nil {
			panic(err)
		}
		defer func() {
			for _, end := range []error{inner.Rollback(ctx), inner.Commit(ctx)} {
				if end != pgx.ErrTxClosed { //nolint:errorlint // as pgx returns it
					panic(end)
				}
			}
		}()
		for i := range 2 { // what the inner one gives up by itself is gone
			again, err := inner.Begin(ctx)
			if err != nil {
				panic(err)
			}
			if _, err := again.Exec(ctx, "INSERT INTO "+s.table+" (key, amount, attempt) VALUES ('k', $1, 1)", int64(i)); err != nil {
				panic(err)
			}
			if i == 0 {
				err = again.Rollback(ctx)
			} else {
				err = again.Commit(ctx)
			}
			if err != nil {
				panic(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	var rows, amount int
	require.NoError(t, s.pool.QueryRow(t.Context(), "SELECT count(*), max(amount) FROM "+s.table).Scan(&rows, &amount))
	require.Equal(t, []int{1, 1}, []int{rows, amount})
	require.True(t, s.Do(t, guardtest.Call{Key: "k"}).Replayed())
}
