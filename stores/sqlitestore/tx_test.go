package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/sqlitestore"
)

// A shop sells something: each of its charges is one row.
type shop struct {
	*guardtest.Server
	store *sqlitestore.Store
	path  string
}

// newShop returns a shop whose requests run h.
func newShop(t testing.TB, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	t.Helper()
	return newShopOn(t, nil, h, opts...)
}

// newShopOn is newShop with options of the store.
func newShopOn(t testing.TB, with []sqlitestore.Option, h func(s *shop, w http.ResponseWriter, r *http.Request), opts ...idempotency.Option) *shop {
	t.Helper()
	s := &shop{path: filepath.Join(t.TempDir(), "shop.db")}
	s.store = open(t, s.path, with...)
	require.NoError(t, s.store.InTx(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `CREATE TABLE charges (key TEXT NOT NULL)`)
		return err
	}))
	opts = append([]idempotency.Option{idempotency.WithTransaction(true)}, opts...)
	g := guardtest.NewGuard(t, s.store, opts...)
	s.Server = guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(s, w, r) })))
	return s
}

func open(t testing.TB, path string, opts ...sqlitestore.Option) *sqlitestore.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guardtest.Patience) // the machine may be slow, whatever the store's own patience
	defer cancel()
	s, err := sqlitestore.Open(ctx, path, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// insert inserts the row of a charge.
func insert(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO charges (key) VALUES (?)", guardtest.Op(ctx).Key().Value)
	return err
}

// charge inserts a row and answers 201.
func charge(s *shop, w http.ResponseWriter, r *http.Request) {
	if err := s.store.InTx(r.Context(), func(tx *sql.Tx) error { return insert(r.Context(), tx) }); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// rows returns how many charges there are.
func (s *shop) rows(t testing.TB) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", s.path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.QueryRowContext(context.Background(), "SELECT count(*) FROM charges").Scan(&n))
	return n
}

func TestRowsAreCommittedWithTheAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		charge(s, w, r)
		assert.Zero(t, s.rows(t), "the rows are there before the answer")
	})
	first := s.Do(t, guardtest.Call{Key: "k"})
	require.Equal(t, http.StatusCreated, first.Status, "%s", first.Body)
	guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
	require.Equal(t, 1, s.rows(t))
}

// The status does not decide. The function does.
func TestFunctionDecides(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, want := range []error{nil, refused} {
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			require.Equal(t, want, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
				require.NoError(t, insert(r.Context(), tx))
				return want
			}))
			w.WriteHeader(http.StatusPaymentRequired)
		})
		first := s.Do(t, guardtest.Call{Key: "k"})
		require.Equal(t, http.StatusPaymentRequired, first.Status)
		guardtest.RequireReplay(t, first, s.Do(t, guardtest.Call{Key: "k"}))
		require.Equal(t, map[bool]int{true: 1}[want == nil], s.rows(t))
	}
}

// A server error and a panic roll back whatever the function has said, and the next request runs
// again, even under Hold.
func TestFailureRollsBack(t *testing.T) {
	t.Parallel()
	for _, fails := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		var attempts atomic.Int64
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if attempts.Add(1) > 1 {
				charge(s, w, r)
				return
			}
			require.NoError(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error { return insert(r.Context(), tx) }))
			fails(w)
		}, idempotency.WithRecovery(idempotency.Hold))
		_, _ = s.Try(t.Context(), guardtest.Call{Key: "k"})
		require.Zero(t, s.rows(t))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t))
	}
}

// A transaction that is longer than the lease completes the first time: nobody can take over while
// it keeps everybody from writing.
func TestTransactionLongerThanItsLease(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		clock(t, s.path)(2 * time.Hour) // as if the transaction had begun before
		require.NoError(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
			if err := insert(r.Context(), tx); err != nil {
				return err
			}
			var key string
			var owner []byte
			if err := tx.QueryRowContext(r.Context(), "SELECT key, owner FROM idempotency_records").Scan(&key, &owner); err != nil {
				return err
			}
			return s.store.Renew(r.Context(), key, store.Owner(owner)) // as its guard does in time
		}))
		w.WriteHeader(http.StatusCreated)
	}, idempotency.WithLease(time.Hour))
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, 1, s.rows(t))
}

// So does one that is longer than the record is kept: nobody else has got it.
func TestTransactionLongerThanItsRetention(t *testing.T) {
	t.Parallel()
	guardtest.Each(t, map[string]time.Duration{"lease": 2 * time.Hour, "retention": 5 * time.Hour}, func(t *testing.T, passes time.Duration) {
		path := filepath.Join(t.TempDir(), "records.db")
		s := open(t, path)
		alice, bob := store.Owner{1}, store.Owner{2}
		claim := func(o store.Owner) store.Record {
			rec := guardtest.Claim(t, s, "k", store.Claim{Owner: o, Lease: time.Hour, Retention: 4 * time.Hour})
			return rec
		}
		require.True(t, claim(alice).Mine)
		clock(t, path)(passes) // as if the transaction had begun before
		tx, err := s.Begin(t.Context(), "k", alice)
		require.NoError(t, err)
		require.NoError(t, s.Renew(t.Context(), "k", alice))
		require.NoError(t, tx.GiveUp(t.Context()))
		require.False(t, claim(bob).Mine, "the run goes on and has its claim")
		require.NoError(t, s.Renew(t.Context(), "k", alice))

		clock(t, path)(passes)
		tx, err = s.Begin(t.Context(), "k", alice)
		require.NoError(t, err)
		require.NoError(t, s.Renew(t.Context(), "k", alice))
		require.NoError(t, tx.Ready(t.Context()))
		require.NoError(t, tx.Complete(t.Context(), store.Completion{Answer: []byte("a"), TTL: time.Hour}))
		require.Equal(t, store.Completed, claim(bob).State)
	})
}

// A step of a transaction could not be recorded after its effect, so it has none: in the
// transaction, and between InTx and the end of the handler.
func TestStepInATransactionIsRefused(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.TaskOption{"": nil, "at most once": {idempotency.AtMostOnce()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				step := func(name string) error {
					_, err := idempotency.Step(r.Context(), name, func(context.Context) (int, error) {
						t.Error("the step has run")
						return 0, nil
					}, opts...)
					return err
				}
				err := s.store.InTx(r.Context(), func(*sql.Tx) error {
					require.ErrorIs(t, step("in it"), store.ErrTransactionOpen)
					return nil
				})
				require.NoError(t, err)
				require.ErrorIs(t, step("after it"), store.ErrTransactionOpen)
				w.WriteHeader(http.StatusCreated)
			})
			start := time.Now()
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Less(t, time.Since(start), 5*time.Second, "it has not waited for its own run")
		})
	}
}

// A claim inside a transaction would wait for the end of its own run. What is recorded is found.
func TestDoInATransactionIsRefused(t *testing.T) {
	t.Parallel()
	var inner *idempotency.Guard
	s := newShop(t, func(_ *shop, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	inner = guardtest.NewGuard(t, s.store, idempotency.WithFailOpen(true))
	key := func(value string) idempotency.Key { return idempotency.Key{Scope: "inner", Value: value} }
	outer := guardtest.NewGuard(t, s.store, idempotency.WithTransaction(true))
	_, _, err := idempotency.Do(t.Context(), inner, key("recorded"), func(context.Context) (int, error) { return 7, nil })
	require.NoError(t, err)
	_, _, err = idempotency.Do(t.Context(), outer, idempotency.Key{Scope: "outer", Value: "k"}, func(ctx context.Context) (int, error) {
		return 1, s.store.InTx(ctx, func(*sql.Tx) error {
			start := time.Now()
			_, _, err := idempotency.Do(ctx, inner, key("new"), func(context.Context) (int, error) {
				t.Error("it has run")
				return 0, nil
			})
			require.ErrorIs(t, err, store.ErrTransactionOpen)
			require.Less(t, time.Since(start), 5*time.Second, "it has not waited for its own run")
			value, _, err := idempotency.Do(ctx, inner, key("recorded"), func(context.Context) (int, error) { return 0, nil })
			require.Equal(t, 7, value)
			return err
		})
	})
	require.NoError(t, err)
	_, _, err = idempotency.Do(t.Context(), inner, key("new"), func(context.Context) (int, error) { return 0, nil })
	require.NoError(t, err, "the transaction is over")
}

// What a handler asks of the store while its run has the writer fails, and does not wait for itself.
func TestHandlerDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	var sweep, other error
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		if err := s.store.InTx(r.Context(), func(*sql.Tx) error { return nil }); err != nil {
			panic(err)
		}
		_, sweep = s.store.Sweep(r.Context(), 1)
		other = s.store.InTx(context.Background(), func(*sql.Tx) error { return nil })
		w.WriteHeader(http.StatusCreated)
	})
	s.store.SetPatience(100 * time.Millisecond)
	require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
	require.ErrorIs(t, sweep, store.ErrTransactionOpen)
	require.ErrorContains(t, other, "has to pass the context of the request")
	s.store.SetPatience(time.Minute)
	require.NoError(t, s.store.InTx(context.Background(), func(*sql.Tx) error { return nil }))
}

// A function that ends its transaction itself is found out, however it does it and however the
// handler leaves: rows that it has committed hold the key under Hold and are not inserted again,
// and rows that it has rolled back are not confirmed.
func TestTransactionThatEndsItselfIsFoundOut(t *testing.T) {
	t.Parallel()
	exec := func(statements ...string) func(tx *sql.Tx) {
		return func(tx *sql.Tx) {
			for _, statement := range statements {
				_, err := tx.ExecContext(context.Background(), statement)
				require.NoError(t, err)
			}
		}
	}
	failed := errors.New("failed")
	for endName, end := range map[string]struct {
		f    func(tx *sql.Tx)
		rows int
	}{
		"Commit":                 {func(tx *sql.Tx) { require.NoError(t, tx.Commit()) }, 1},
		"COMMIT":                 {exec("COMMIT"), 1},
		"COMMIT and BEGIN":       {exec("COMMIT", "BEGIN IMMEDIATE"), 1},
		"Rollback":               {func(tx *sql.Tx) { require.NoError(t, tx.Rollback()) }, 0},
		"ROLLBACK":               {exec("ROLLBACK"), 0},
		"ROLLBACK and BEGIN":     {exec("ROLLBACK", "BEGIN IMMEDIATE"), 0},
		"ROLLBACK and INSERT":    {exec("ROLLBACK", "INSERT INTO charges (key) VALUES ('k')"), 1},
		"a conflict that aborts": {func(tx *sql.Tx) { _, _ = tx.Exec("INSERT OR ROLLBACK INTO charges (key) VALUES (NULL)") }, 0},
	} {
		for leaveName, leave := range map[string]func(w http.ResponseWriter) error{
			"success": func(http.ResponseWriter) error { return nil },
			"error":   func(http.ResponseWriter) error { return failed },
			"panic":   func(http.ResponseWriter) error { panic(http.ErrAbortHandler) },
			"exit":    func(http.ResponseWriter) error { runtime.Goexit(); return nil },
		} {
			for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError} {
				t.Run(fmt.Sprint(endName, "/", leaveName, "/", status), func(t *testing.T) {
					t.Parallel()
					var events guardtest.Events
					s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
						require.Error(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
							require.NoError(t, insert(r.Context(), tx))
							end.f(tx)
							return leave(w)
						}))
						w.WriteHeader(status)
					}, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
					for range 2 {
						_, _ = s.Try(t.Context(), guardtest.Call{Key: "k"})
						require.Equal(t, end.rows, s.rows(t))
					}
					require.Equal(t, end.rows, events.Count(event.CommittedAlone))
					require.Equal(t, end.rows > 0, events.Count(event.Held) > 0)
					require.Zero(t, events.Count(event.Overtaken)+events.Count(event.LeaseLost))
				})
			}
		}
	}
}

// So is a transaction that the handler has kept, and ends after InTx.
func TestTransactionThatIsEndedAfterInTxIsFoundOut(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"COMMIT": true, "ROLLBACK": false} {
		for _, status := range []int{http.StatusCreated, http.StatusInternalServerError} {
			t.Run(fmt.Sprint(name, "/", status), func(t *testing.T) {
				t.Parallel()
				var events guardtest.Events
				s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
					var kept *sql.Tx
					require.NoError(t, s.store.InTx(r.Context(), func(tx *sql.Tx) error {
						kept = tx
						return insert(r.Context(), tx)
					}))
					_, err := kept.ExecContext(r.Context(), name)
					require.NoError(t, err)
					w.WriteHeader(status)
				}, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
				rows := map[bool]int{true: 1}[commits]
				for range 2 {
					got := s.Do(t, guardtest.Call{Key: "k"})
					require.Equal(t, rows, s.rows(t))
					require.Equal(t, commits && status == http.StatusCreated, got.Status == http.StatusCreated)
				}
				require.Equal(t, rows, events.Count(event.CommittedAlone))
				require.Equal(t, commits && status != http.StatusCreated, events.Count(event.Held) > 0)
			})
		}
	}
}

// While a transaction is open, others read. Whoever needs the writer is told that the store is away.
func TestOthersDuringATransaction(t *testing.T) {
	t.Parallel()
	began, proceed := make(chan struct{}), make(chan struct{})
	s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
		charge(s, w, r)
		if op, _ := idempotency.FromContext(r.Context()); op.Key().Value == "slow" {
			close(began)
			<-proceed
		}
	})
	done := s.Do(t, guardtest.Call{Key: "done"})
	slow := make(chan guardtest.Reply, 1)
	go func() { slow <- s.Attempt(t, guardtest.Call{Key: "slow"}) }()
	<-began
	guardtest.RequireReplay(t, done, s.Do(t, guardtest.Call{Key: "done"}))
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "slow"}), http.StatusConflict, problem.InFlight)
	guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "new"}), http.StatusServiceUnavailable, problem.StoreUnavailable)
	close(proceed)
	require.Equal(t, http.StatusCreated, (<-slow).Status)
	require.Equal(t, 2, s.rows(t))
}

// Two stores of one file, as two processes have them: one effect for each key, and waiters of one
// are woken by the other.
func TestTwoStoresOfOneFile(t *testing.T) {
	t.Parallel()
	s := newShop(t, charge)
	other := *s
	other.store = open(t, s.path)
	g := guardtest.NewGuard(t, other.store, idempotency.WithTransaction(true))
	other.Server = guardtest.ServeHTTP1(t, g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { charge(&other, w, r) })))
	const keys = 20
	var all sync.WaitGroup
	for _, server := range []*guardtest.Server{s.Server, other.Server, s.Server, other.Server} {
		all.Go(func() {
			for k := range keys {
				call := guardtest.Call{Key: "key-" + string(rune('a'+k))}
				for server.Do(t, call).Status != http.StatusCreated {
					if t.Failed() {
						return
					}
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, keys, s.rows(t))
}
