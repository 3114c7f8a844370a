package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"example.com/idempotency"
	"example.com/idempotency/event"
	"example.com/idempotency/internal/guardtest"
	"example.com/idempotency/internal/pgserver"
	"example.com/idempotency/problem"
	"example.com/idempotency/store"
	"example.com/idempotency/stores/pgstore"
	"example.com/idempotency/stores/pgstore/internal/pgproxy"
	"example.com/idempotency/stores/pgstore/internal/pgtest"
)

// This file is about transactions whose connection is lost, and about handlers that leave no
// connection to others. Package pgfaults loses connections everywhere.

// The connection falls silent at the end of the transaction. The run ends all the same.
func TestSilentConnectionDoesNotHangARun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		way, end string
		trip     int // of the statement that has no reply
	}{
		{"InTx", "commit", 1},
		{"InTx", "rollback", 1},
		{"InSQLTx", "commit", 1},
		{"InSQLTx", "rollback", 1},
		{"InSQLTx stdlib", "commit", 2},
		{"InSQLTx stdlib", "rollback", 1},
	} {
		t.Run(c.way+" "+c.end, func(t *testing.T) {
			t.Parallel()
			at, err := url.Parse(pgtest.Shared(t).DSN)
			require.NoError(t, err)
			proxy, err := pgproxy.New(at.Host)
			require.NoError(t, err)
			t.Cleanup(proxy.Close)
			at.Host, at.RawQuery = proxy.Addr(), at.RawQuery+"&default_query_exec_mode=exec"
			heal, attempts := make(chan struct{}), atomic.Int64{}
			s := newShopAt(t, &pgtest.Server{Server: &pgserver.Server{DSN: at.String()}}, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if attempts.Add(1) > 1 {
					charge(ways[c.way], "read committed")(s, w, r)
					return
				}
				err := ways[c.way](s, r.Context(), "read committed", func(exec execer) error { return s.insert(r.Context(), exec) })
				proxy.Arm(c.trip, pgproxy.Fault{Silent: heal})
				if err != nil || c.end == "rollback" {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
			}, idempotency.WithLease(3*time.Second))
			t.Cleanup(sync.OnceFunc(func() { close(heal) })) // before the server is closed
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			first, err := s.Try(ctx, guardtest.Call{Key: "k"})
			require.NoError(t, err)
			require.True(t, proxy.Fired())
			require.False(t, first.Replayed(), "it is the answer of this run")
			require.Equal(t, map[string]int{"commit": 201, "rollback": 500}[c.end], first.Status, "%s", first.Body)
			require.Equal(t, map[string]int{"commit": 1}[c.end], s.rows(t, "k"))
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.Equal(t, 1, s.rows(t, "k"))
		})
	}
}

// The backend is terminated before the commit. The client is told that nothing has happened, and
// that it may try again.
func TestTerminatedBackendIsRolledBack(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		var attempts atomic.Int64
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			err := inTx(s, r.Context(), level, func(exec execer) error {
				return errors.Join(s.insert(r.Context(), exec), exec(r.Context(), "SELECT set_config('application_name', $1, true)", s.table))
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if attempts.Add(1) == 1 {
				tag, err := s.pool.Exec(r.Context(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1", s.table)
				if err != nil || tag.RowsAffected() != 1 {
					t.Error(tag, err)
				}
			}
			w.WriteHeader(http.StatusCreated)
		})
		guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusServiceUnavailable, problem.RolledBack)
		require.Zero(t, s.rows(t, "k"))
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t, "k"))
	})
}

// The backend is terminated in the first statement of the function. By then the client has heard that BEGIN was
// executed, and no state of the transaction. Nothing has happened, and nobody has ended the transaction.
func TestBackendTerminatedInTheFirstStatement(t *testing.T) {
	stepTx := func(s *shop, ctx context.Context, level string, f func(exec execer) error) error {
		_, err := pgstore.StepTx(ctx, s.store, "step", pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)}, func(_ context.Context, tx pgx.Tx) (int, error) {
			return 0, f(pgxExecer(tx))
		})
		return err
	}
	test := func(t *testing.T, inTx way, level string) {
		lock := tables.Add(1)
		attempts := 0
		var events guardtest.Events
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			attempts++
			err := inTx(s, r.Context(), level, func(exec execer) error {
				if attempts == 1 {
					if err := exec(r.Context(), "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
						return err
					}
				}
				return s.insert(r.Context(), exec)
			})
			answer(w, err)
		}, idempotency.WithRecovery(idempotency.Hold), idempotency.WithObserver(events.Observe))
		holder, err := s.pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = holder.Rollback(t.Context()) }()
		pgtest.Exec(t, holder, "SELECT pg_advisory_xact_lock($1)", lock)
		first := make(chan guardtest.Reply, 1)
		go func() { first <- s.Do(t, guardtest.Call{Key: "k"}) }()
		require.Eventually(t, func() bool {
			tag, err := holder.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::int8", lock)
			return err == nil && tag.RowsAffected() == 1
		}, guardtest.Patience, time.Millisecond)
		require.Equal(t, http.StatusInternalServerError, (<-first).Status)
		require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.Equal(t, 1, s.rows(t, "k"))
		require.Zero(t, events.Count(event.CommittedAlone)+events.Count(event.Held))
	}
	onEachWay(t, test)
	onEachLevel(t, func(t *testing.T, level string) { test(t, stepTx, level) })
}

// Twenty-four handlers wait for each other's four connections. The store renews their leases on
// connections of its own.
func TestWaitingHandlersLoseNoLease(t *testing.T) {
	const handlers, conns = 24, 4
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		var events guardtest.Events
		server := *pgtest.Shared(t).Server
		// On so small a table, a transaction at SERIALIZABLE would read all records, and conflict with all others.
		// Without that, a plan looks so dear that the server would compile each statement.
		server.DSN += fmt.Sprintf("&pool_max_conns=%d&options=-c%%20enable_seqscan%%3Doff%%20-c%%20jit%%3Doff", conns)
		c := newCrowd(t)
		s := newShopAt(t, &pgtest.Server{Server: &server}, c.handler(inTx, level), idempotency.WithLease(time.Hour), idempotency.WithObserver(events.Observe))
		require.EqualValues(t, conns, s.pool.Config().MaxConns)
		c.come(t, s, handlers, conns, level == "serializable")
		require.Zero(t, events.Count(event.LeaseLost))
	})
}

// A crowd is more handlers than there are connections. Those that have one keep it until all leases were
// renewed.
type crowd struct {
	began, inside atomic.Int64
	open          chan struct{} // is closed when they may go on
	goOn          func()
}

func newCrowd(t testing.TB) *crowd {
	c := &crowd{open: make(chan struct{})}
	c.goOn = sync.OnceFunc(func() { close(c.open) })
	t.Cleanup(c.goOn) // of a test that has failed
	return c
}

func (c *crowd) handler(inTx way, level string) func(s *shop, w http.ResponseWriter, r *http.Request) {
	return func(s *shop, w http.ResponseWriter, r *http.Request) {
		c.began.Add(1)
		err := inTx(s, r.Context(), level, func(exec execer) error {
			err := s.insert(r.Context(), exec)
			c.inside.Add(1)
			<-c.open
			return err
		})
		answer(w, err)
	}
}

// come lets handlers come, of which so many get a connection. Where they conflict, one may be told to come
// again.
func (c *crowd) come(t *testing.T, s *shop, handlers, conns int64, conflict bool) {
	t.Cleanup(c.goOn) // before the server is closed
	var all sync.WaitGroup
	defer all.Wait()
	defer c.goOn()
	for _, key := range keysOf(int(handlers)) {
		all.Go(func() {
			got := s.Attempt(t, guardtest.Call{Key: key})
			for got.Problem.Code == problem.StoreUnavailable || got.Problem.Code == problem.RolledBack && conflict {
				got = s.Attempt(t, guardtest.Call{Key: key}) // by a claim on a machine that is too busy, or by a conflict
			}
			if got.Status != http.StatusCreated || s.rows(t, key) != 1 {
				t.Errorf("%s: %d %s", key, got.Status, got.Body)
			}
		})
	}
	require.Eventually(t, func() bool { return c.began.Load() >= handlers && c.inside.Load() >= conns }, 30*time.Second, time.Millisecond)
	s.renew(t, handlers)
	c.goOn()
	all.Wait()
	if !conflict {
		require.Equal(t, handlers, c.began.Load())
	}
}

// renew renews the leases of all runs of a shop, as their guards do in time.
func (s *shop) renew(t testing.TB, runs int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // of a store that waits for the handlers
	defer cancel()
	rows, err := pgtest.Shared(t).Pool(t).Query(ctx, "SELECT key, owner FROM "+s.records+" WHERE state = 'claimed'")
	require.NoError(t, err)
	var key string
	var owner []byte
	tag, err := pgx.ForEachRow(rows, []any{&key, &owner}, func() error { return s.store.Renew(ctx, key, store.Owner(owner)) })
	require.NoError(t, err)
	require.Equal(t, runs, tag.RowsAffected())
}

// A step that is longer than the lease is renewed, and commits the first time.
func TestStepLongerThanItsLease(t *testing.T) {
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
				if runs.Add(1) > 1 {
					return
				}
				clock(t, s.pool, s.records)(2 * time.Hour) // as if the step had begun before
				_, err := s.step(r.Context(), pgx.TxIsoLevel(level), func() error {
					s.renew(t, 1)
					return nil
				})
				require.NoError(t, err)
				guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
				w.WriteHeader(http.StatusCreated)
			}, idempotency.WithTransaction(false), idempotency.WithLease(time.Hour))
			require.Equal(t, http.StatusCreated, s.Do(t, guardtest.Call{Key: "k"}).Status)
			require.EqualValues(t, 1, runs.Load())
			require.Equal(t, 1, s.rows(t, "k"))
		})
	}
}

// A transaction that is longer than the lease is rolled back, and its run goes on. It has its claim.
func TestRollbackLongerThanItsLease(t *testing.T) {
	onEachWay(t, func(t *testing.T, inTx way, level string) {
		declined := errors.New("declined")
		var runs atomic.Int64
		s := newShop(t, func(s *shop, w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) > 1 {
				return
			}
			clock(t, s.pool, s.records)(2 * time.Hour) // as if the transaction had begun before
			require.ErrorIs(t, inTx(s, r.Context(), level, func(exec execer) error {
				err := s.insert(r.Context(), exec)
				s.renew(t, 1)
				return errors.Join(err, declined)
			}), declined)
			guardtest.RequireProblem(t, s.Do(t, guardtest.Call{Key: "k"}), http.StatusConflict, problem.InFlight)
			w.WriteHeader(http.StatusPaymentRequired)
		}, idempotency.WithLease(time.Hour))
		require.Equal(t, http.StatusPaymentRequired, s.Do(t, guardtest.Call{Key: "k"}).Status)
		require.EqualValues(t, 1, runs.Load())
		require.Zero(t, s.rows(t, "k"))
	})
}

// A transaction at a strict level keeps renewals away. If it is longer than its record is kept, nobody else has
// got the record.
func TestTransactionLongerThanItsRetention(t *testing.T) {
	for _, level := range levels[1:] {
		for name, passes := range map[string]time.Duration{"lease": 2 * time.Hour, "retention": 5 * time.Hour} {
			t.Run(level+"/"+name, func(t *testing.T) {
				t.Parallel()
				pool := pgtest.Shared(t).Pool(t)
				s, table := newStore(t, pool)
				let := clock(t, pool, table)
				alice, bob := store.Owner{1}, store.Owner{2}
				claim := func(o store.Owner) store.Record {
					rec := guardtest.Claim(t, s, "k", store.Claim{Owner: o, Lease: time.Hour, Retention: 4 * time.Hour})
					return rec
				}
				begin := func() (store.Transaction, pgx.Tx) {
					let(passes) // as if the transaction had begun before
					joined, tx, err := s.JoinTx(t.Context(), "k", alice, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
					require.NoError(t, err)
					t.Cleanup(func() { _ = joined.Rollback(context.Background()) }) // or the pool would wait for a test that has failed
					require.NoError(t, s.Renew(t.Context(), "k", alice))
					require.False(t, claim(bob).Mine, "the record is locked")
					return joined, tx
				}
				require.True(t, claim(alice).Mine)
				_, tx := begin()
				require.NoError(t, tx.Rollback(t.Context()))
				require.False(t, claim(bob).Mine, "the run goes on and has its claim")
				require.NoError(t, s.Renew(t.Context(), "k", alice))

				let(passes)
				require.NoError(t, s.TryStep(t.Context(), pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)}, store.StepRecord{Key: "k", Owner: alice, Name: "step"},
					func(context.Context, pgx.Tx) ([]byte, error) {
						return []byte("1"), s.Renew(t.Context(), "k", alice)
					}))
				require.False(t, claim(bob).Mine, "a step is a renewal")

				joined, tx := begin()
				require.NoError(t, tx.Commit(t.Context()))
				require.NoError(t, joined.Complete(t.Context(), store.Completion{Answer: []byte("a"), TTL: time.Hour}))
				require.Equal(t, store.Completed, claim(bob).State)
			})
		}
	}
}
